#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "isoloss/gate/count_floors.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/null_test.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/stats/false_discovery.h"

namespace isoloss::gate {
namespace {

using runlog::PrecisionColumns;
using runlog::ProbeLog;
using runlog::RoutingFlipColumns;

// These are the smallest scales, in the unit of each statistic. Smaller
// deviations change no conclusion even if all good pairs agree to the last
// bit.
constexpr double kErrorFloor = 0.005;  // of a logarithm: half a percent
constexpr double kGainFloor = 1e-5;    // some 100 roundings of FP32
constexpr double kShareFloor = 0.001;  // %; at least one element
constexpr double kFlipFloor = 0.001;   // at least one token
/// A smaller relative error counts as none: it is far below a rounding of
/// FP32.
constexpr double kNoError = 1e-9;

/// Holds the columns of one probe, whose rows refer to tensors by their
/// places.
struct PrecisionTable {
  const PrecisionColumns& precision;
  const RoutingFlipColumns& flips;
  const std::vector<std::string>& tensors;
};

/// Describes a kind of statistic of one tensor.
struct Kind {
  const char* name;
  std::vector<double> PrecisionColumns::*column;
  double floor;
  bool logarithm;
  bool optional;  ///< NaN where the tensor is not quantised
  /// A change of all elements adds this, so that one of n elements adds whole
  /// / n. It is 0 if errors of single elements say nothing.
  double whole;
};

constexpr Kind kKinds[] = {
    {"relative error", &PrecisionColumns::relative_error, kErrorFloor, true,
     false, 0},
    {"gain", &PrecisionColumns::gain, kGainFloor, false, false, 1},
    {"error of the worst group", &PrecisionColumns::worst_group_error,
     kErrorFloor, true, false, 0},
    {"share of saturated elements", &PrecisionColumns::saturated, kShareFloor,
     false, true, 100},
    {"share of underflows", &PrecisionColumns::underflows, kShareFloor, false,
     true, 100},
};
constexpr double kWholeFlips = 1;

/// Says where a value belongs. Values with equal keys can be compared.
struct Key {
  int64_t step;
  std::string subject;  ///< the tensor, or "MoE layer 2"
  size_t kind;          ///< of kKinds; their number for routing flips

  // clang-tidy 14 takes the comparison with 0 in operator<=> for a null
  // pointer.
  auto operator<=>(const Key&) const =
      default;  // NOLINT(modernize-use-nullptr)
};

double Transformed(const Kind& kind, double value) {
  if (!kind.logarithm || std::isnan(value)) return value;
  return std::log(std::max(value, kNoError));
}

/// A statistic that means nothing for its tensor has no entry.
std::map<Key, double> ValuesOf(const PrecisionTable& table) {
  std::map<Key, double> values;
  const auto& precision = table.precision;
  for (size_t i = 0; i < precision.step.size(); ++i) {
    const std::string& tensor =
        table.tensors[static_cast<size_t>(precision.tensor[i])];
    for (size_t k = 0; k < std::size(kKinds); ++k) {
      const double value = (precision.*kKinds[k].column)[i];
      if (kKinds[k].optional && std::isnan(value)) continue;
      values[{precision.step[i], tensor, k}] = Transformed(kKinds[k], value);
    }
  }
  for (size_t i = 0; i < table.flips.step.size(); ++i) {
    values[{table.flips.step[i], RouterSubject(table.flips.layer[i]),
            std::size(kKinds)}] = table.flips.flip_share[i];
  }
  return values;
}

std::vector<NullStatistic> StatisticsOf(const std::map<Key, double>& values,
                                        const ProbeLog& log) {
  const CountFloors counts(log);
  std::vector<NullStatistic> statistics;
  for (const auto& [key, value] : values) {
    const std::string& subject = key.subject;
    if (key.kind == std::size(kKinds)) {
      statistics.push_back({"share of routing flips of " + subject, subject,
                            key.step,
                            counts.Floor(subject, kFlipFloor, kWholeFlips)});
      continue;
    }
    const Kind& kind = kKinds[key.kind];
    statistics.push_back({fmt::format("{} of {}", kind.name, subject), subject,
                          key.step,
                          counts.Floor(subject, kind.floor, kind.whole)});
  }
  return statistics;
}

std::vector<double> Values(const std::map<Key, double>& values) {
  std::vector<double> list;
  for (const auto& [key, value] : values) list.push_back(value);
  return list;
}

bool SameKeys(const std::map<Key, double>& a, const std::map<Key, double>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](const auto& x, const auto& y) {
                                              return x.first == y.first;
                                            });
}

PrecisionTable TableOf(const Probe& probe) {
  return {probe.log.precision, probe.log.routing_flips, probe.log.tensors};
}

std::vector<std::string> ProbeObstacles(const Evidence& evidence) {
  std::vector<std::string> findings;
  const std::string& recipe =
      evidence.pairing->baseline[0]->log.provenance.recipe;
  for (const Probe& probe : evidence.candidate_probes) {
    for (std::string& mismatch :
         Mismatches(probe, evidence.pairing->candidate)) {
      findings.push_back(std::move(mismatch));
    }
    if (probe.log.reference_recipe != recipe) {
      findings.push_back(fmt::format(
          "{}: was probed against recipe '{}', but the baseline's is '{}'",
          Label(probe), probe.log.reference_recipe, recipe));
    }
    if (!probe.log.provenance.complete) {
      findings.push_back(
          fmt::format("{}: is not marked as complete", Label(probe)));
    }
    if (probe.log.precision.step.empty()) {
      findings.push_back(fmt::format("{}: holds no comparison with a reference",
                                     Label(probe)));
    }
    if (!SameKeys(ValuesOf(TableOf(probe)),
                  ValuesOf(TableOf(evidence.candidate_probes[0])))) {
      findings.push_back(fmt::format("{}: steps or tensors are not those of {}",
                                     Label(probe),
                                     Label(evidence.candidate_probes[0])));
    }
  }
  return findings;
}

std::vector<std::string> EnsembleObstacles(const Evidence& evidence) {
  const NullEnsemble& ensemble = *evidence.seeds;
  std::vector<std::string> findings =
      Mismatches(ensemble, runlog::EnsembleKind::kSeeds, *evidence.pairing);
  if (!findings.empty()) return findings;
  const auto expected = ValuesOf(TableOf(evidence.candidate_probes[0]));
  for (const runlog::EnsembleMember& member : ensemble.ensemble.members) {
    const auto values = ValuesOf(
        {member.precision, member.routing_flips, ensemble.ensemble.tensors});
    if (!SameKeys(values, expected)) {
      findings.push_back(fmt::format(
          "{}: seed {} was probed at other steps or tensors than {}",
          Label(ensemble), member.seed, Label(evidence.candidate_probes[0])));
    }
    if (std::any_of(values.begin(), values.end(), [](const auto& entry) {
          return !std::isfinite(entry.second);
        })) {
      findings.push_back(fmt::format(
          "{}: seed {} has a value that is not finite, but members must be "
          "good runs",
          Label(ensemble), member.seed));
    }
  }
  return findings;
}

/// Without an ensemble nobody knows how large these measures may be.
void AppendMeasures(const Evidence& evidence, LevelFindings& found) {
  const char* remedy =
      "not gated: no ensemble says how large it may be; isoloss lab ensemble "
      "build "
      "--kind seeds makes one";
  for (const Kind& kind : kKinds) {
    double largest = 0;
    std::string where = "no value";
    for (const Probe& probe : evidence.candidate_probes) {
      const auto& precision = probe.log.precision;
      const auto& column = precision.*kind.column;
      for (size_t i = 0; i < column.size(); ++i) {
        if (kind.optional && std::isnan(column[i])) continue;
        if (std::fabs(column[i]) <= std::fabs(largest)) continue;
        largest = column[i];
        where = fmt::format(
            "{} at step {}",
            probe.log.tensors[static_cast<size_t>(precision.tensor[i])],
            precision.step[i]);
      }
    }
    std::string name = fmt::format("largest {}", kind.name);
    std::replace(name.begin(), name.end(), ' ', '_');
    found.measures.push_back({name, largest, kind.optional ? "%" : "1",
                              fmt::format("{}; {}", where, remedy)});
  }
}

/// Finds the tensors that stand out, so that readers know where to look.
std::vector<TensorFinding> Rank(const std::vector<NullStatistic>& statistics,
                                const stats::MaxTResult& result) {
  std::map<std::string, TensorFinding> tensors;
  std::map<std::string, double> counts;
  for (size_t i = 0; i < statistics.size(); ++i) {
    counts[statistics[i].subject] += 1;
    const auto [at, is_new] = tensors.try_emplace(statistics[i].subject);
    TensorFinding& finding = at->second;
    if (!is_new && !(std::fabs(result.z[i]) > std::fabs(finding.z))) continue;
    finding = {statistics[i].subject, statistics[i].name, statistics[i].step,
               result.z[i], result.p_values[i]};
  }
  std::vector<TensorFinding> ranked;
  std::vector<double> p_values;
  for (const auto& [name, finding] : tensors) {
    ranked.push_back(finding);
    // Bonferroni's correction applies among the statistics of one tensor.
    p_values.push_back(std::min(1.0, finding.adjusted_p * counts[name]));
  }
  const auto adjusted = stats::BenjaminiHochberg(p_values);
  for (size_t i = 0; i < ranked.size(); ++i) {
    ranked[i].adjusted_p = adjusted[i];
  }
  std::erase_if(ranked, [](const TensorFinding& finding) {
    constexpr double kRemarkable = 0.05;
    return finding.adjusted_p > kRemarkable;
  });
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const TensorFinding& a, const TensorFinding& b) {
                     return a.adjusted_p < b.adjusted_p;
                   });
  return ranked;
}

LevelFindings JudgePrecision(const Evidence& evidence, const Policy& policy) {
  LevelFindings found;
  const bool probed = std::any_of(
      evidence.candidate_probes.begin(), evidence.candidate_probes.end(),
      [](const Probe& probe) { return !probe.log.reference_recipe.empty(); });
  if (policy.question != compare::Question::kPrecision || !probed) {
    return found;
  }
  auto findings = ProbeObstacles(evidence);
  if (findings.empty() && evidence.seeds == nullptr) {
    AppendMeasures(evidence, found);
    return found;
  }
  if (findings.empty()) findings = EnsembleObstacles(evidence);
  found.checks.push_back(EvidenceCheck(
      "evidence", std::move(findings),
      fmt::format("{} probes", evidence.candidate_probes.size())));
  if (found.checks.back().outcome != Outcome::kPass) return found;

  const auto members = UsableMembers(*evidence.seeds, *evidence.pairing);
  if (static_cast<int64_t>(members.size()) < policy.min_members) {
    found.checks.push_back(
        TooFewMembers(*evidence.seeds, members.size(), policy));
    return found;
  }
  const auto keys = ValuesOf(TableOf(evidence.candidate_probes[0]));
  std::vector<double> null;
  for (const runlog::EnsembleMember* member : members) {
    const auto values =
        Values(ValuesOf({member->precision, member->routing_flips,
                         evidence.seeds->ensemble.tensors}));
    null.insert(null.end(), values.begin(), values.end());
  }
  std::vector<Observed> observed;
  for (const Probe& probe : evidence.candidate_probes) {
    observed.push_back({fmt::format("seed {}", probe.log.provenance.seed),
                        Values(ValuesOf(TableOf(probe)))});
  }
  const auto statistics = StatisticsOf(keys, evidence.candidate_probes[0].log);
  const auto result =
      JudgeAgainstNull("precision_probe", statistics, null, observed,
                       policy.null_headroom, policy, found);
  found.tensors = Rank(statistics, result);
  return found;
}

}  // namespace

extern constinit const Level kLevel_l3_precision = {
    .id = LevelId::l3_precision,
    .name = "L3",
    .title = "errors of tensors",
    .question =
        "does the candidate differ from BF16, tensor by tensor, as its "
        "recipe's declaration predicts?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kPrecision,
    .run = &JudgePrecision,
    .remedy =
        "make an ensemble (isoloss lab ensemble build --kind seeds EXPERIMENT "
        "--arm ARM --out FILE) and a probe (isoloss lab probe), and give them "
        "with --ensemble and --probe",
    .foreign_remedy =
        "only runs that isoloss itself trains can be probed against BF16: see "
        "how the recipe does in a model of its own with `isoloss verify`"};

}  // namespace isoloss::gate
