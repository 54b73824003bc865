// One rank of a job: control_member RANK WORLD_SIZE PORT [exit]. Prints a line for every event:
// "port N" on rank 0, "met", "abort CULPRIT CODE TEXT". Leaves the job in order after an abort or
// when its standard input ends; with "exit" it ends without a goodbye instead.
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "virga/cluster/control.h"

namespace {

using namespace virga;
using namespace virga::cluster;

void print(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void print_failure(const Error& error) {
  print(fmt::format("abort {} {} {}", error.culprit(), to_string(error.code()), error.what()));
}

ControlOptions options_of(char** arguments) {
  ControlOptions options;
  options.self.rank = std::atoi(arguments[1]);
  options.self.host_name = "here";
  options.world_size = options.local_world_size = std::atoi(arguments[2]);
  options.rendezvous_host = "127.0.0.1";
  options.rendezvous_port = std::atoi(arguments[3]);
  options.heartbeat_period = std::chrono::milliseconds(100);
  options.heartbeat_timeout = std::chrono::milliseconds(1000);
  options.meeting_timeout = std::chrono::seconds(20);
  options.leave_timeout = std::chrono::seconds(2);
  return options;
}

// Until standard input ends or `event` is set.
void wait_for_end(int event) {
  pollfd entries[2] = {{STDIN_FILENO, POLLIN, 0}, {event, POLLIN, 0}};
  poll(entries, 2, -1);
}

void run(char** arguments, bool exits) {
  const int aborted = eventfd(0, EFD_CLOEXEC);
  Control control(options_of(arguments));
  print(fmt::format("port {}", control.port()));
  control.meet();
  control.set_abort_listener([aborted](const Abort& abort) {
    print_failure(to_error(abort));
    eventfd_write(aborted, 1);
  });
  print("met");
  wait_for_end(aborted);
  if (exits) _exit(0);
}

}  // namespace

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (count < 4) return 2;
  try {
    run(arguments, count > 4);
  } catch (const Error& error) {
    print_failure(error);
  }
  print("end");
}
