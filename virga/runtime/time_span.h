#pragma once

#include "virga/runtime/clock.h"

namespace virga {

// When something began and ended, by the steady clock.
struct TimeSpan {
  Time begin{};
  Time end{};
  Duration length() const { return end - begin; }
};

}  // namespace virga
