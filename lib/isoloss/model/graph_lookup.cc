// Finds the parts of a graph by their names.
#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"

namespace isoloss::model {

std::string_view RowUnitName(RowUnit rows) {
  switch (rows) {
    case RowUnit::kTokens:
      return "tokens";
    case RowUnit::kExpertTokens:
      return "expert_tokens";
    case RowUnit::kParameter:
      return "parameter";
  }
  return "";
}

std::string GraphTensor::Name() const {
  return Tensor{.module = module, .kind = kind}.Name();
}

std::vector<precision::Site> Graph::Sites() const {
  std::vector<precision::Site> result;
  for (const GemmSite& site : sites) {
    const std::vector<size_t>& shape = parameters[site.parameter].shape;
    const size_t out = shape[shape.size() - 2];
    result.push_back({.name = site.name, .in = shape.back(), .out = out});
  }
  return result;
}

size_t Graph::ParameterIndex(std::string_view name) const {
  const auto found = std::ranges::find(parameters, name, &ParameterSpec::name);
  ISOLOSS_ASSERT(found != parameters.end());
  return static_cast<size_t>(found - parameters.begin());
}

size_t Graph::SiteIndex(std::string_view name) const {
  for (size_t i = 0; i < sites.size(); ++i) {
    if (sites[i].name == name) return i;
  }
  ThrowError(
      ErrorKind::kConfig,
      "GEMM site `{}` was asked for, but the model's graph has {} others "
      "only. Add it to lib/isoloss/model/graph.cc.",
      name, sites.size());
}

}  // namespace isoloss::model
