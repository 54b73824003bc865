#pragma once

#include <string>

#include "virga/lab/file_descriptor.h"

namespace virga::lab {

// Carries what a rank writes into a pipe to where it belongs: to one of our own streams, line by
// line with a prefix, or into memory.
class OutputPump {
 public:
  // Lines go to `target_fd` with `prefix` in front.
  OutputPump(FileDescriptor source, int target_fd, std::string prefix);
  // Everything is appended to *memory, which must outlive the pump.
  OutputPump(FileDescriptor source, std::string* memory);

  int fd() const { return source_.get(); }  // -1 after its end

  // Moves what is there without waiting; at the end of the stream also the last line, even if it
  // has no end.
  void pump();
  // As pump(), but regards whatever is there as the end.
  void finish();

 private:
  void take(const char* data, size_t size);
  void flush_lines(bool all);

  FileDescriptor source_;
  int target_fd_ = -1;
  std::string prefix_;
  std::string* memory_ = nullptr;
  std::string line_;
};

}  // namespace virga::lab
