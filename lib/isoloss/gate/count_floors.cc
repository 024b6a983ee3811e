#include "isoloss/gate/count_floors.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/gate/probe_completeness.h"

namespace isoloss::gate {

CountFloors::CountFloors(const runlog::ProbeLog& log) {
  const auto is_plain = [&log](int64_t probe_case) {
    return log.cases[static_cast<size_t>(probe_case)] == kPlainCase;
  };
  const auto& oracle = log.oracle;
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    if (!is_plain(oracle.probe_case[i])) continue;
    counts_[log.tensors[static_cast<size_t>(oracle.tensor[i])]] =
        static_cast<double>(oracle.elements[i]) +
        static_cast<double>(oracle.UnseenElements(i));
  }
  const runlog::GraphColumns& tensors = log.provenance.graph.tensors;
  for (size_t i = 0; i < tensors.name.size(); ++i) {
    const auto found = counts_.find(tensors.name[i]);
    if (tensors.kind[i] != "update" || found == counts_.end()) continue;
    counts_[tensors.parameter[i]] = found->second;
  }
  const auto& routing = log.routing;
  for (size_t i = 0; i < routing.step.size(); ++i) {
    if (!is_plain(routing.probe_case[i])) continue;
    counts_[RouterSubject(routing.layer[i])] =
        static_cast<double>(routing.tokens[i]);
  }
}

double CountFloors::Floor(std::string_view subject, double floor,
                          double whole) const {
  const auto count = counts_.find(subject);
  if (count == counts_.end() || !(count->second > 0)) return floor;
  return std::max(floor, whole / count->second);
}

std::string RouterSubject(int64_t layer) {
  return fmt::format("MoE layer {}", layer);
}

}  // namespace isoloss::gate
