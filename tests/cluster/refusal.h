#pragma once

#include <gtest/gtest.h>
#include <string>

#include "virga/base/error.h"

namespace virga::cluster {

// The error's message; fails the test unless there is one, of kind kInvalidArgument.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace virga::cluster
