#include "isoloss/gate/oracle_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/gate/probe_completeness.h"
#include "isoloss/gate/probe_rows.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::gate {
namespace {

/// Compares one probe with its run.
class Figures {
 public:
  Figures(const Probe& probe, const compare::Run& run, Check& check)
      : probe_(probe.log),
        run_(run.log),
        label_(compare::Label(run)),
        check_(check) {}

  /// Both functions return how many figures were compared.
  int64_t CompareRouting() const {
    const runlog::MoeColumns& moe = run_.moe;
    const runlog::OracleRoutingColumns& routing = probe_.routing;
    const auto layers = static_cast<size_t>(moe.layers);
    if (probe_.schema_version < 2 ||
        moe.routing_digest.size() != moe.step.size() * layers) {
      return 0;
    }
    std::unordered_map<int64_t, size_t> rows;  // by step
    for (size_t i = 0; i < moe.step.size(); ++i) rows.emplace(moe.step[i], i);
    int64_t compared = 0;
    for (size_t i = 0; i < routing.step.size(); ++i) {
      const auto probe_case = static_cast<size_t>(routing.probe_case[i]);
      const auto row = rows.find(routing.step[i]);
      const auto layer = static_cast<size_t>(routing.layer[i]);
      if (probe_.cases[probe_case] != kPlainCase || row == rows.end() ||
          layer >= layers) {
        continue;
      }
      ++compared;
      const int64_t logged = moe.routing_digest[row->second * layers + layer];
      if (logged == routing.digest[i]) continue;
      const auto hex = [](int64_t digest) {
        return DigestToHex(static_cast<uint64_t>(digest));
      };
      check_.findings.push_back(fmt::format(
          "{}: /moe/routing_digest of step {}, layer {} is {}, but the routing "
          "that the oracle followed has {}",
          label_, routing.step[i], layer, hex(logged), hex(routing.digest[i])));
    }
    return compared;
  }

  int64_t CompareBytes() const {
    const runlog::PlainStepColumns& plain = probe_.plain_steps;
    const runlog::ExchangeColumns& x = run_.exchange;
    struct Kind {
      const char* name;
      const std::vector<int64_t>& expected;
      const std::vector<int64_t>& logged;
    };
    const std::array<Kind, 3> kinds = {{
        {"bytes_to_self", plain.bytes_to_self, x.bytes_to_self},
        {"bytes_within_nodes", plain.bytes_within_nodes, x.bytes_within_nodes},
        {"bytes_between_nodes", plain.bytes_between_nodes,
         x.bytes_between_nodes},
    }};
    int64_t compared = 0;
    for (const auto& at : runlog::MatchRows(plain.step, x.step)) {
      for (const Kind& kind : kinds) {
        if (at.a >= kind.expected.size() || at.b >= kind.logged.size()) {
          continue;
        }
        ++compared;
        if (kind.logged[at.b] == kind.expected[at.a]) continue;
        check_.findings.push_back(fmt::format(
            "{}: /exchange/{} of step {} is {}, but routing, mesh and payloads "
            "give {}",
            label_, kind.name, at.step, kind.logged[at.b],
            kind.expected[at.a]));
      }
    }
    return compared;
  }

 private:
  const runlog::ProbeLog& probe_;
  const runlog::RunLog& run_;
  const std::string label_;
  Check& check_;
};

}  // namespace

std::optional<Check> CheckFigures(const Evidence& evidence) {
  Check check{.name = "figures",
              .outcome = Outcome::kPass,
              .quantity =
                  "routing digests and byte counts of the runs' logs that the "
                  "oracle does not confirm:",
              .relation = "at most ",
              .limit = 0};
  int64_t digests = 0;
  int64_t bytes = 0;
  const auto compare_all = [&](std::span<const Probe> probes,
                               const std::vector<const compare::Run*>& runs) {
    for (const Probe& probe : probes) {
      for (const compare::Run* run : runs) {
        if (run->log.provenance.seed != probe.log.provenance.seed) continue;
        const Figures figures(probe, *run, check);
        digests += figures.CompareRouting();
        bytes += figures.CompareBytes();
      }
    }
  };
  compare_all(evidence.candidate_probes, evidence.pairing->candidate);
  compare_all(evidence.baseline_probes, evidence.pairing->baseline);
  if (digests + bytes == 0) return std::nullopt;
  check.value = static_cast<double>(check.findings.size());
  check.evidence =
      fmt::format("{} digests and {} counts of bytes", digests, bytes);
  FailOnFindings("look at what writes these columns of the log", check);
  return check;
}

}  // namespace isoloss::gate
