#pragma once

#include <chrono>
#include <cstdint>

namespace virga {

using Duration = std::chrono::nanoseconds;

// Time since the clock began. Steady and virtual time are the same type, so algorithms can't tell which world they run
// in.
using Time = std::chrono::nanoseconds;

inline double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
inline Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// The one door to time.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
  // Virtual clocks jump forward when nothing else can happen; steady ones return false and make the loop wait.
  virtual bool advance_to(Time time) = 0;
};

class SteadyClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now() - start_; }
  bool advance_to(Time) override { return false; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class VirtualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  bool advance_to(Time time) override {
    if (time > now_) now_ = time;
    return true;
  }

 private:
  Time now_{0};
};

// A point in time by which a wait must have ended. Every wait has one.
class Deadline {
 public:
  explicit Deadline(Time at) : at_(at) {}
  static Deadline after(const Clock& clock, Duration duration) { return Deadline(clock.now() + duration); }
  Time at() const { return at_; }

 private:
  Time at_;
};

}  // namespace virga
