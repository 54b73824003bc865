#include "virga/net/ucx/address.h"

#include <cstdint>
#include <cstring>

#include "virga/base/error.h"
#include "virga/base/hash.h"

namespace virga::net::ucx {
namespace {

constexpr std::string_view kMagic = "VUCX";
constexpr uint16_t kVersion = 1;
constexpr size_t kLargest = 64 << 10;  // a UCX worker address has some hundred bytes

template <class T>
void put(std::string& blob, T value) {
  blob.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes fields off the front of a blob and never reads past its end.
class Reader {
 public:
  explicit Reader(std::string_view blob) : left_(blob) {}

  std::string_view bytes(size_t count) {
    if (count > left_.size()) fail(ErrorCode::kCorrupt, "a rank's address is cut short");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto length = number<uint32_t>();
    if (length == 0 || length > kLargest) {
      fail(ErrorCode::kCorrupt, "a rank's address claims a part of {} bytes", length);
    }
    return std::string(bytes(length));
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace

std::string encode(const Address& address) {
  std::string blob(kMagic);
  put(blob, kVersion);
  put(blob, uint16_t{0});
  put(blob, address.rank);
  for (const std::string* part : {&address.inside_host, &address.between_hosts}) {
    put(blob, static_cast<uint32_t>(part->size()));
    blob += *part;
  }
  put(blob, fnv1a(blob));
  return blob;
}

Address decode_address(std::string_view blob) {
  Reader reader(blob);
  if (reader.bytes(kMagic.size()) != kMagic) fail(ErrorCode::kCorrupt, "this is no rank's address");
  const auto version = reader.number<uint16_t>();
  if (version != kVersion) {
    fail(ErrorCode::kCorrupt, "a rank's address has version {}, this rank knows {}: run the same Virga everywhere",
         version, kVersion);
  }
  if (reader.number<uint16_t>() != 0) fail(ErrorCode::kCorrupt, "a rank's address has unknown flags");
  Address address;
  address.rank = reader.number<Rank>();
  address.inside_host = reader.text();
  address.between_hosts = reader.text();
  const auto sum = reader.number<uint64_t>();
  if (!reader.at_end() || sum != fnv1a(blob.substr(0, blob.size() - sizeof sum))) {
    fail(ErrorCode::kCorrupt, "a rank's address was changed on its way");
  }
  return address;
}

}  // namespace virga::net::ucx
