#include "virga/data/idx.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <zlib.h>

#include "virga/base/error.h"

namespace virga::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int64_t kMaxBytes = int64_t{1} << 40;
constexpr int64_t kReadBytes = int64_t{1} << 20;

// A file read through zlib, which passes plain files through unchanged.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb"), &gzclose) {
    if (!file_) fail(ErrorCode::kUnavailable, "can't open {}: {}", path, std::strerror(errno));
  }

  // Reads up to `bytes` into `out` and returns how many there were before the end.
  int64_t read(uint8_t* out, int64_t bytes) {
    int64_t done = 0;
    while (done < bytes) {
      const auto chunk = static_cast<unsigned>(std::min(bytes - done, kReadBytes));
      const int got = gzread(file_.get(), out + done, chunk);
      if (got <= 0) break;
      done += got;
    }
    check();
    return done;
  }

  const std::string& path() const { return path_; }

 private:
  void check() {
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    if (code == Z_OK || code == Z_STREAM_END) return;
    if (code == Z_BUF_ERROR) fail(ErrorCode::kCorrupt, "{} is truncated: its gzip stream has no end", path_);
    if (code == Z_ERRNO) fail(ErrorCode::kUnavailable, "can't read {}: {}", path_, std::strerror(errno));
    fail(ErrorCode::kCorrupt, "{} is damaged: {}", path_, text);
  }

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

void check_magic(const Input& input, const std::array<uint8_t, 4>& magic, int dimensions) {
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte || magic[3] != dimensions) {
    fail(ErrorCode::kCorrupt,
         "{} starts with {:02x} {:02x} {:02x} {:02x}, but an IDX file of bytes in {} dimension{} "
         "starts with 00 00 08 "
         "{:02x}",
         input.path(), magic[0], magic[1], magic[2], magic[3], dimensions, dimensions == 1 ? "" : "s", dimensions);
  }
}

// Reads the sizes and returns their product, which is known not to overflow.
int64_t read_sizes(Input& input, int dimensions, std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (int i = 0; i < dimensions; ++i) {
    std::array<uint8_t, 4> big_endian{};
    if (input.read(big_endian.data(), 4) != 4) fail(ErrorCode::kCorrupt, "{} ends inside its header", input.path());
    int64_t size = 0;
    for (uint8_t byte : big_endian) size = size << 8 | byte;
    if (size != 0 && product > kMaxBytes / size) {
      fail(ErrorCode::kCorrupt, "{} claims more than {} bytes of data", input.path(), kMaxBytes);
    }
    sizes.push_back(size);
    product *= size;
  }
  return product;
}

void read_bytes(Input& input, int64_t total, std::vector<uint8_t>& bytes) {
  while (static_cast<int64_t>(bytes.size()) < total) {
    const auto before = static_cast<int64_t>(bytes.size());
    const int64_t chunk = std::min(total - before, kReadBytes);
    bytes.resize(static_cast<size_t>(before + chunk));
    const int64_t got = input.read(bytes.data() + before, chunk);
    if (got != chunk) {
      fail(ErrorCode::kCorrupt, "{} is truncated: its header promises {} bytes of data, it holds {}", input.path(),
           total, before + got);
    }
  }
  uint8_t extra = 0;  // also makes zlib check the checksum at the end
  if (input.read(&extra, 1) != 0) {
    fail(ErrorCode::kCorrupt, "{} has bytes left over after the {} that its header promises", input.path(), total);
  }
}

}  // namespace

IdxArray read_idx(const std::string& path, int dimensions) {
  Input input(path);
  std::array<uint8_t, 4> magic{};
  if (input.read(magic.data(), 4) != 4) fail(ErrorCode::kCorrupt, "{} ends inside its header", path);
  check_magic(input, magic, dimensions);
  IdxArray array;
  const int64_t total = read_sizes(input, dimensions, array.sizes);
  read_bytes(input, total, array.bytes);
  return array;
}

}  // namespace virga::data
