#pragma once

#include <string>
#include <ucp/api/ucp.h>
#include <utility>
#include <vector>

namespace virga::net::ucx {

// One UCX context with its worker: one kind of way between ranks, with its own transports, devices
// and treatment of errors. Loop thread only.
class Context {
 public:
  struct Options {
    std::string name;                                         // for error messages
    std::vector<std::pair<std::string, std::string>> config;  // UCX settings, without UCX_ in front
    ucp_err_handling_mode_t errors = UCP_ERR_HANDLING_MODE_NONE;
    int event_descriptor = -1;  // the epoll to which the worker adds what wakes it
  };

  explicit Context(const Options& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ucp_worker_h worker() const { return worker_; }
  ucp_err_handling_mode_t errors() const { return errors_; }
  // What others need to connect to this worker.
  std::string address() const;
  // Hands every active message with this id to `callback`.
  void on_message(unsigned id, ucp_am_recv_callback_t callback, void* argument);

  // One bounded batch; true if anything moved.
  bool progress();
  // Before a sleep; false if there is something to do.
  bool arm();

  // Never progresses again: UCX then neither reads nor writes a user's buffer.
  void halt() { halted_ = true; }
  bool halted() const { return halted_; }

  // The worker is not destroyed but stays with the process, with its memory and some ten descriptors: for one that may
  // have half-wired a connection to a peer that takes no more, where UCX 1.13 asserts and so ends the process.
  void abandon() { abandoned_ = true; }

 private:
  const ucp_err_handling_mode_t errors_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  bool halted_ = false;
  bool abandoned_ = false;
  int fruitless_ = 0;  // polls in vain while it could not sleep
};

}  // namespace virga::net::ucx
