#include "virga/lab/output.h"

#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace virga::lab {
namespace {

// A line longer than this is cut, so that a rank that never ends a line can't fill our memory.
constexpr size_t kLongestLineBytes = 64 * 1024;

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads our output any more; the run goes on
    text.remove_prefix(static_cast<size_t>(count));
  }
}

FileDescriptor without_blocking(FileDescriptor source) {
  ::fcntl(source.get(), F_SETFL, O_NONBLOCK);
  return source;
}

}  // namespace

OutputPump::OutputPump(FileDescriptor source, int target_fd, std::string prefix)
    : source_(without_blocking(std::move(source))), target_fd_(target_fd), prefix_(std::move(prefix)) {}

OutputPump::OutputPump(FileDescriptor source, std::string* memory)
    : source_(without_blocking(std::move(source))), memory_(memory) {}

void OutputPump::pump() {
  char block[16384];
  while (source_.valid()) {
    const ssize_t count = ::read(source_.get(), block, sizeof block);
    if (count > 0) {
      take(block, static_cast<size_t>(count));
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else if (count < 0 && errno == EAGAIN) {
      return;
    } else {
      source_.reset();
      flush_lines(true);
    }
  }
}

void OutputPump::finish() {
  pump();
  source_.reset();
  flush_lines(true);
}

void OutputPump::take(const char* data, size_t size) {
  if (memory_ != nullptr) {
    memory_->append(data, size);
    return;
  }
  line_.append(data, size);
  flush_lines(line_.size() > kLongestLineBytes);
}

void OutputPump::flush_lines(bool all) {
  std::string out;
  size_t begin = 0;
  for (size_t end; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    out += prefix_ + line_.substr(begin, end + 1 - begin);
  }
  if (all && begin < line_.size()) {
    out += prefix_ + line_.substr(begin) + "\n";
    begin = line_.size();
  }
  line_.erase(0, begin);
  write_all(target_fd_, out);
}

}  // namespace virga::lab
