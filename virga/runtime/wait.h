#pragma once

#include <functional>
#include <future>

namespace virga {

// Waits for a future on a thread of the caller's and takes its result; calls `while_waiting` (if there is one) every
// tenth of a second. If that throws, `give_up` must make the future end soon; its end is waited for, since what it
// stands for may use the caller's memory, and the exception goes on.
void wait(std::future<void>& future, const std::function<void()>& while_waiting, const std::function<void()>& give_up);

}  // namespace virga
