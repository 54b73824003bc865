#pragma once

#include <string_view>
#include <ucs/type/status.h>

#include "virga/base/error.h"

namespace virga::net::ucx {

// Throws kUnavailable unless `status` is UCS_OK.
inline void check(ucs_status_t status, std::string_view what) {
  if (status != UCS_OK) fail(ErrorCode::kUnavailable, "UCX: {}: {}", what, ucs_status_string(status));
}

}  // namespace virga::net::ucx
