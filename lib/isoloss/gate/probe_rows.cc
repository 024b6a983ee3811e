#include "isoloss/gate/probe_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <unordered_set>

namespace isoloss::gate {

const std::string& ProbeRow::Tensor() const {
  return probe->log.tensors[static_cast<size_t>(oracle().tensor[row])];
}

const std::string& ProbeRow::Case() const {
  return probe->log.cases[static_cast<size_t>(oracle().probe_case[row])];
}

std::string ProbeRow::Place() const {
  return fmt::format("{} in case {}, step {} of {}", Tensor(), Case(),
                     oracle().step[row], Label(*probe));
}

int64_t ProbeRow::Flips() const {
  const int64_t all = oracle().flips[row];
  return HasShape(probe->log) ? all - oracle().repeated_flips[row] : all;
}

double ProbeRow::ExpectedFlips() const {
  const double all = oracle().expected_flips[row];
  if (!HasShape(probe->log)) return all;
  return std::max(0.0, all - oracle().expected_repeated_flips[row]);
}

bool ProbeRow::IsRounded() const {
  return std::isnan(oracle().noise_ratio[row]);
}

bool ComputedBefore(const ProbeRow& a, const ProbeRow& b) {
  const auto key = [](const ProbeRow& at) {
    const auto& oracle = at.oracle();
    return std::tuple(oracle.step[at.row], oracle.tensor[at.row],
                      oracle.probe_case[at.row]);
  };
  return key(a) < key(b);
}

std::vector<bool> AreProducts(const runlog::ProbeLog& log) {
  const runlog::GraphColumns& graph = log.provenance.graph.tensors;
  std::unordered_set<std::string_view> products;
  for (size_t i = 0; i < graph.name.size(); ++i) {
    const std::string& kind = graph.kind[i];
    if (!graph.site[i].empty() &&
        (kind == "output" || kind == "dgrad" || kind == "wgrad")) {
      products.insert(graph.name[i]);
    }
  }
  std::vector<bool> are;
  for (const std::string& name : log.tensors) {
    are.push_back(products.contains(name));
  }
  return are;
}

bool HasShape(const runlog::ProbeLog& log) { return log.schema_version >= 2; }

bool HasTensorNoise(const runlog::ProbeLog& log) {
  return log.schema_version >= 3;
}

std::string WithoutShape(const Probes& probes) {
  const auto without = std::ranges::count_if(
      probes, [](const Probe* probe) { return !HasShape(probe->log); });
  if (without == 0) return "";
  return fmt::format(
      "; {} of {} probes are of an earlier program and do not tell", without,
      probes.size());
}

}  // namespace isoloss::gate
