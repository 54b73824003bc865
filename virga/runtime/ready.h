#pragma once

#include <coroutine>

namespace virga {

// Puts a coroutine at the end of the current loop's ready queue. Only on the loop's own thread, while it runs.
void enqueue_ready(std::coroutine_handle<> handle);

}  // namespace virga
