#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "virga/lab/process.h"

namespace virga::lab {

enum class Output {
  // Rank 0 writes to our own stdout and stderr; lines of the other ranks get "[rank] " in front.
  kPass,
  // Nothing is printed; RankExit::output holds stdout and stderr of each rank.
  kCapture,
};

struct CrewOptions {
  double timeout_seconds = 0;  // for the whole run; 0: none
  double grace_seconds = 30;   // how long the others may go on after the first rank failed
  Output output = Output::kPass;
  int interrupt_fd = -1;  // InterruptSignals::fd() where the user's signals end the run; -1: none
};

struct RankExit {
  int status = 0;      // exit status; 128 + signal where a signal ended it
  int signal = 0;      // 0: it exited by itself
  std::string output;  // with Output::kCapture
};

struct CrewResult {
  // 0: all ranks ended with 0. Else 128 + signal after an interrupt, 124 after the timeout, else
  // the status of the rank that failed first.
  int status = 0;
  double seconds = 0;
  std::vector<RankExit> ranks;
};

// The processes of one job, from start to end. It leaves none behind: what still runs when it goes
// is killed. Used from one thread, which must live as long as it does.
class Crew {
 public:
  explicit Crew(const CrewOptions& options);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Starts the next rank: the first is rank 0. Standard streams and process group are set by the
  // crew. Throws as spawn().
  void add(SpawnOptions spawn_options);

  int size() const { return static_cast<int>(members_.size()); }

  // Sends a signal to a rank and to what it has started in its process group; does nothing if it
  // has ended.
  void signal(int rank, int signal_number);

  // What a rank has written so far (Output::kCapture).
  const std::string& output(int rank) const;

  // Drives the crew until a rank has written `text` (Output::kCapture only). False when it ended or
  // the time ran out before that.
  bool wait_for_output(int rank, std::string_view text, double seconds);

  // Drives the crew until every rank has ended.
  CrewResult wait();

 private:
  using Clock = std::chrono::steady_clock;
  struct Member;

  void step(Clock::time_point until);
  void check_exit(int rank);
  void read_interrupt();
  void enforce_limits();
  void begin_stop(int status);
  void signal_all(int signal_number);
  bool all_ended() const;
  Clock::time_point next_limit() const;

  CrewOptions options_;
  Clock::time_point started_;                               // the first rank
  Clock::time_point failed_at_ = Clock::time_point::max();  // the first failure of a rank
  Clock::time_point stop_at_ = Clock::time_point::max();    // SIGTERM went out
  bool killed_ = false;                                     // SIGKILL went out, too
  int status_ = 0;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace virga::lab
