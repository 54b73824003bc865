#pragma once

#include <cstddef>
#include <ucp/api/ucp.h>

#include "virga/net/ucx/context.h"
#include "virga/net/ucx/receiver.h"

namespace virga::net::ucx {

// Turns UCX active messages of one context into arrivals. All of it runs inside the context's
// progress.
class Inlet {
 public:
  static constexpr unsigned kMessage = 1;  // UCX active message ids, wire format
  static constexpr unsigned kGoodbye = 2;  // a rank closes its transport in good order; the header is its i32 rank

  Inlet(Context& context, Receiver& receiver);
  Inlet(const Inlet&) = delete;
  Inlet& operator=(const Inlet&) = delete;

 private:
  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                 const ucp_am_recv_param_t* params);
  static ucs_status_t on_goodbye(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                 const ucp_am_recv_param_t* params);

  Context& context_;
  Receiver& receiver_;
};

}  // namespace virga::net::ucx
