#pragma once

#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <string_view>

namespace virga {

// What went wrong, in kinds that a caller can act on. The message says the rest: operation, epoch, ranks, what to do.
enum class ErrorCode {
  kInvalidArgument,    // wrong use, found before anything was sent
  kDeadlineExceeded,   // a wait ran out
  kCancelled,          // this process gave the operation up
  kPeerLost,           // a rank died, was stopped or was cut off
  kMismatch,           // ranks disagree: operation, root, shape, codec, model, options
  kCorrupt,            // bytes from the wire or the disk that can't be what they claim to be
  kAborted,            // another rank failed first and told everybody
  kResourceExhausted,  // a bounded queue or the disk is full
  kUnavailable,        // something outside is not there: a port, a file, a privilege
  kNonFinite,          // NaN or Inf where a policy forbids it
};

std::string_view to_string(ErrorCode code);

// The one exception type of the house. `culprit` is the rank to blame where there is one, else -1.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int culprit = -1)
      : std::runtime_error(message), code_(code), culprit_(culprit) {}

  ErrorCode code() const { return code_; }
  int culprit() const { return culprit_; }

 private:
  ErrorCode code_;
  int culprit_;
};

// Inside a catch block: the exception that is being handled, as an Error. What is none already becomes kCancelled with
// its text.
Error current_error();

// Throws Error with a formatted message: fail(ErrorCode::kCorrupt, "index {} is outside {}", i, n).
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Throws kInvalidArgument unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

}  // namespace virga
