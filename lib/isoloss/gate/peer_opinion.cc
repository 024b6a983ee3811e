#include "isoloss/gate/peer_opinion.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "isoloss/compare/peer_rules.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

using Curve = std::span<const double>;

/// MLPerf takes a spread only from at least three references.
constexpr size_t kFewestReferences = 3;

std::vector<Curve> CurvesOf(const std::vector<const compare::Run*>& runs) {
  std::vector<Curve> curves;
  for (const compare::Run* run : runs) {
    curves.emplace_back(run->log.steps.loss_nats);
  }
  return curves;
}

/// Returns a target that all references reach: the highest mean of their last
/// values.
compare::RcpTarget TargetOf(const std::vector<Curve>& references) {
  compare::RcpTarget target;
  target.target = -HUGE_VAL;
  for (const Curve& curve : references) {
    const size_t values = std::min(target.window, curve.size());
    target.target = std::max(target.target, stats::Mean(curve.last(values)));
  }
  return target;
}

}  // namespace

std::vector<PeerOpinion> PeerOpinions(const compare::Pairing& pairing) {
  std::vector<PeerOpinion> opinions;
  for (const compare::PeerRule& rule : compare::PeerRules()) {
    PeerOpinion opinion{rule.name, rule.rule, rule.source};
    for (const compare::SeedPair& pair : pairing.pairs) {
      ++opinion.judged;
      opinion.accepted += rule.accepts({pair.baseline->log.steps.loss_nats,
                                        pair.candidate->log.steps.loss_nats})
                              ? 1
                              : 0;
    }
    opinions.push_back(opinion);
  }
  const std::vector<Curve> references = CurvesOf(pairing.baseline);
  if (references.size() < kFewestReferences) return opinions;
  const bool accepts = compare::MlperfRcpAccepts(
      references, CurvesOf(pairing.candidate), TargetOf(references));
  opinions.push_back(
      {"mlperf_rcp",
       "the candidate's runs reach the loss at which the slowest reference "
       "ends no sooner than the references' spread allows",
       "mlcommons/logging 7bbf792, mlperf_logging/rcp_checker", accepts ? 1 : 0,
       1});
  return opinions;
}

}  // namespace isoloss::gate
