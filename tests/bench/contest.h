// Times things in turn, so that they can be compared on a machine whose clock
// drifts.
//
// The clock of a shared machine drifts by a fifth, so no figure here is an
// absolute one: every sample stands next to samples of a limit and of the
// peers, taken within milliseconds in the same process, and the median of their
// ratios is what counts (docs/performance.md).
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "measure.h"

namespace isoloss::bench {

class Contest {
 public:
  /// For calls that stay on the calling thread: processor time, and a sample of
  /// the FMA peak before and after each of the call.
  static Contest OneThread() { return Contest(ThreadSeconds, true); }
  /// For calls that use several threads: time on the wall.
  static Contest Wall() { return Contest(WallSeconds, false); }

  /// Adds a contender and calls it twice: to warm up, and to find how many
  /// calls last a sample. Returns its number, from 0. Whatever the call refers
  /// to must outlive the contest.
  size_t Add(std::function<void()> call);

  /// One sample of each contender, every other round in reverse order, so that
  /// what precedes a contender does not always favour the same.
  void Round();
  /// As many rounds as `state` asks for; the time it shows is contender 0's.
  void Run(benchmark::State& state);

  /// Medians over the rounds. At least one round.
  double Seconds(size_t contender) const;
  /// Time of `contender` / time of `other`.
  double TimeRatio(size_t contender, size_t other) const;
  /// `flops` a call as a fraction of the FMA peak beside it (OneThread only).
  double OfPeak(size_t contender, double flops) const;
  /// That peak itself, beside `contender`, in operations a second.
  double Peak(size_t contender) const;

 private:
  struct Contender {
    std::function<void()> call;
    size_t calls = 1;
    std::vector<double> seconds = {};
    std::vector<double> peaks = {};
  };

  Contest(Clock clock, bool with_peak) : clock_(clock), with_peak_(with_peak) {}

  Clock clock_;
  bool with_peak_;
  std::vector<Contender> contenders_;
};

}  // namespace isoloss::bench
