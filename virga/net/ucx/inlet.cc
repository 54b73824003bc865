#include "virga/net/ucx/inlet.h"

#include <cstring>
#include <memory>

#include "virga/net/ucx/arrival.h"

namespace virga::net::ucx {
Inlet::Inlet(Context& context, Receiver& receiver) : context_(context), receiver_(receiver) {
  context_.on_message(kMessage, &Inlet::on_message, this);
  context_.on_message(kGoodbye, &Inlet::on_goodbye, this);
}

ucs_status_t Inlet::on_message(void* self, const void* header_data, size_t header_bytes, void* data, size_t bytes,
                               const ucp_am_recv_param_t* params) {
  Context& context = static_cast<Inlet*>(self)->context_;
  Receiver& receiver = static_cast<Inlet*>(self)->receiver_;
  Header header;
  if (header_bytes != sizeof header) {
    receiver.refused(Error(ErrorCode::kCorrupt,
                           fmt::format("a message has a header of {} bytes, not {}", header_bytes, sizeof header)));
    return UCS_OK;
  }
  std::memcpy(&header, header_data, sizeof header);
  if (!receiver.accepts_from(header.source)) return UCS_OK;
  bool held = false;
  const bool may_hold = (params->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
  if (params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
    receiver.arrived(std::make_unique<AnnouncedMessage>(header, data, bytes, receiver,
                                                        WholeMessage::Lender{context.worker(), &held}));
  } else {
    receiver.arrived(std::make_unique<WholeMessage>(
        header, data, bytes, receiver, WholeMessage::Lender{context.worker(), may_hold ? &held : nullptr}));
  }
  return held ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t Inlet::on_goodbye(void* self, const void* header_data, size_t header_bytes, void*, size_t,
                               const ucp_am_recv_param_t*) {
  Rank source = -1;
  if (header_bytes == sizeof source) std::memcpy(&source, header_data, sizeof source);
  static_cast<Inlet*>(self)->receiver_.peer_left(source);
  return UCS_OK;
}

}  // namespace virga::net::ucx
