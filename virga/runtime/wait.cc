#include "virga/runtime/wait.h"

#include <chrono>

namespace virga {

void wait(std::future<void>& future, const std::function<void()>& while_waiting, const std::function<void()>& give_up) {
  while (while_waiting && future.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    try {
      while_waiting();
    } catch (...) {
      give_up();
      future.wait();
      throw;
    }
  }
  future.get();
}

}  // namespace virga
