// Replicates the rules by which other projects call two runs the same, so that
// they can be measured beside the gate's rules. The replicas keep the defects
// of those rules and decide nothing here. docs/sources.md lists the rules.
#pragma once

#include <span>
#include <string_view>

namespace isoloss::compare {

/// Losses of a run and of its reference, step by step from step 1, as the
/// program wrote them; lengths may differ.
struct PeerPair {
  std::span<const double> reference;
  std::span<const double> candidate;
};

/// One pair of loss curves is judged by a rule.
struct PeerRule {
  std::string_view name;    ///< "megatron_approximate"
  std::string_view rule;    ///< in a few words, with its limits
  std::string_view source;  ///< project, file and version
  bool (*accepts)(const PeerPair& pair);
};

std::span<const PeerRule> PeerRules();

/// MLPerf's reference convergence points judge a set of runs. A submission must
/// reach the target no faster than the references allow. A slower one is
/// accepted.
///
/// A curve reaches the target at the first step whose mean loss over the last
/// `window` steps is at most `target`. Of the reference runs, the largest and
/// the smallest are dropped. mu is the mean of the n remaining runs, and sd the
/// standard deviation of all of them. A submission of m runs (one unconverged
/// run is dropped) is accepted if its mean is at least
///   mu - t_{0.95} * sd * sqrt(1/n + 1/m).
///
/// Special  A submission in which several runs never reach the target is
///          refused. Fewer than three references accept everything, since they
///          have no spread.
/// Source   mlcommons/logging 7bbf792, mlperf_logging/rcp_checker.
struct RcpTarget {
  double target = 0;  ///< nats
  size_t window = 5;  ///< steps
};
bool MlperfRcpAccepts(std::span<const std::span<const double>> references,
                      std::span<const std::span<const double>> submission,
                      const RcpTarget& target);

}  // namespace isoloss::compare
