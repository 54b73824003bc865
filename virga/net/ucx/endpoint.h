#pragma once

#include <string_view>
#include <ucp/api/ucp.h>

#include "virga/net/ucx/context.h"

namespace virga::net::ucx {

// A connection to one peer by one context. Loop thread only.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint();

  // `address` is a worker address as Context::address() gives it; `on_error` is called once, from
  // progress, when the context watches for errors and the peer is lost.
  void open(Context& context, std::string_view address, ucp_err_handler_cb_t on_error, void* argument);
  bool is_open() const { return handle_ != nullptr; }
  ucp_ep_h handle() const { return handle_; }

  // Cancels everything on it; requests complete in later progress. Only where the context watches
  // for errors.
  void close_by_force();

  // Orderly end in steps, each polled by `settled()`: flush(), then close().
  void flush();
  void close();
  // Whether the last flush or close has ended.
  bool settled();

 private:
  void take(ucs_status_ptr_t request);

  ucp_ep_h handle_ = nullptr;
  void* request_ = nullptr;  // the running flush or close
};

}  // namespace virga::net::ucx
