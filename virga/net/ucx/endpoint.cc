#include "virga/net/ucx/endpoint.h"

#include <utility>

#include "virga/net/ucx/status.h"

namespace virga::net::ucx {

Endpoint::~Endpoint() { take(nullptr); }

void Endpoint::open(Context& context, std::string_view address, ucp_err_handler_cb_t on_error, void* argument) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = context.errors();
  if (context.errors() == UCP_ERR_HANDLING_MODE_PEER) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_handler = {on_error, argument};
  }
  check(ucp_ep_create(context.worker(), &params, &handle_), "no endpoint");
}

void Endpoint::close_by_force() {
  if (!handle_) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  take(ucp_ep_close_nbx(std::exchange(handle_, nullptr), &params));
}

void Endpoint::flush() {
  if (!handle_) return;
  const ucp_request_param_t params{};
  take(ucp_ep_flush_nbx(handle_, &params));
}

void Endpoint::close() {
  if (!handle_) return;
  const ucp_request_param_t params{};
  take(ucp_ep_close_nbx(std::exchange(handle_, nullptr), &params));
}

bool Endpoint::settled() {
  if (request_ && ucp_request_check_status(request_) == UCS_INPROGRESS) return false;
  take(nullptr);
  return true;
}

void Endpoint::take(ucs_status_ptr_t request) {
  if (request_) ucp_request_free(request_);
  request_ = UCS_PTR_IS_PTR(request) ? request : nullptr;
}

}  // namespace virga::net::ucx
