#include "virga/lab/report.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga::lab {
namespace {

using Json = nlohmann::ordered_json;

Json host_json(int host, const HostReport& report) {
  return {{"host", host},
          {"name", report.name},
          {"address", report.address},
          {"bytes_sent", report.traffic.bytes_sent},
          {"bytes_received", report.traffic.bytes_received},
          {"drops_sending", report.traffic.drops_sending},
          {"drops_receiving", report.traffic.drops_receiving}};
}

Json rank_json(int rank, int host, const RankExit& exit) {
  Json signal = exit.signal != 0 ? Json(exit.signal) : Json(nullptr);
  return {{"rank", rank}, {"host", host}, {"exit_status", exit.status}, {"signal", signal}};
}

std::string temporary_name(const std::string& path) { return fmt::format("{}.{}.tmp", path, ::getpid()); }

FileDescriptor create(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
}

[[noreturn]] void fail_to_write(const std::string& path, int error) {
  fail(ErrorCode::kUnavailable, "can't write '{}': {}", path, std::strerror(error));
}

}  // namespace

std::string to_json(const Report& report) {
  Json json = {{"command", report.command},        {"rate_bits_per_second", report.rate_bits_per_second},
               {"seconds", report.result.seconds}, {"status", report.result.status},
               {"hosts", Json::array()},           {"ranks", Json::array()}};
  for (size_t host = 0; host < report.hosts.size(); ++host) {
    json["hosts"].push_back(host_json(static_cast<int>(host), report.hosts[host]));
  }
  for (size_t rank = 0; rank < report.result.ranks.size(); ++rank) {
    const int host = static_cast<int>(rank) / report.ranks_per_host;
    json["ranks"].push_back(rank_json(static_cast<int>(rank), host, report.result.ranks[rank]));
  }
  // A command line may hold bytes that are no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_atomically(const std::string& path, const std::string& content) {
  const std::string temporary = temporary_name(path);
  const FileDescriptor file = create(temporary);
  const ssize_t written = file.valid() ? ::write(file.get(), content.data(), content.size()) : -1;
  if (written == static_cast<ssize_t>(content.size()) && ::rename(temporary.c_str(), path.c_str()) == 0) {
    return;
  }
  const int error = errno;
  ::unlink(temporary.c_str());
  fail_to_write(path, error);
}

void require_writable(const std::string& path) {
  const std::string temporary = temporary_name(path);
  if (!create(temporary).valid()) fail_to_write(path, errno);
  ::unlink(temporary.c_str());
}

}  // namespace virga::lab
