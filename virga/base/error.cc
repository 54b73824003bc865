#include "virga/base/error.h"

namespace virga {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kDeadlineExceeded:
      return "deadline exceeded";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kMismatch:
      return "ranks disagree";
    case ErrorCode::kCorrupt:
      return "corrupt data";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kNonFinite:
      return "non-finite value";
  }
  return "unknown error";
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kCancelled, error.what());
  } catch (...) {
    return Error(ErrorCode::kCancelled, "an exception of unknown type");
  }
}

}  // namespace virga
