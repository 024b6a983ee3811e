// What other projects call "the same run", so that their rules can be measured
// beside the gate's. They are replicas of what those rules do, defects
// included, and decide nothing here. docs/sources.md lists the rules.
#pragma once

#include <span>
#include <string_view>

namespace isoloss::compare {

/// Losses of one run and of the run it is held against, step by step from step
/// 1, as the program wrote them; lengths may differ.
struct PeerPair {
  std::span<const double> reference;
  std::span<const double> candidate;
};

/// A rule that one pair of loss curves is judged by.
struct PeerRule {
  std::string_view name;    ///< "megatron_approximate"
  std::string_view rule;    ///< in a few words, with its limits
  std::string_view source;  ///< project, file and version
  bool (*accepts)(const PeerPair& pair);
};

std::span<const PeerRule> PeerRules();

/// MLPerf's reference convergence points judge a set of runs: does a submission
/// reach the target no faster than the references allow? Slower is accepted.
///
/// A curve reaches the target at the first step whose mean loss over the last
/// `window` steps is at most `target`. With `references` reference runs, the
/// largest and the smallest dropped, of mean mu and the standard deviation of
/// all of them: accepted iff the mean of the submission's runs (one unconverged
/// run is dropped) is at least mu - t_{0.95} * sd * sqrt(1/n + 1/m).
///
/// Special  more than one run that never reaches the target is refused.
///          Fewer than three references accept everything: there is no spread.
/// Source   mlcommons/logging 7bbf792, mlperf_logging/rcp_checker.
struct RcpTarget {
  double target = 0;  ///< nats
  size_t window = 5;  ///< steps
};
bool MlperfRcpAccepts(std::span<const std::span<const double>> references,
                      std::span<const std::span<const double>> submission,
                      const RcpTarget& target);

}  // namespace isoloss::compare
