#include "isoloss/model/announce.h"

#include <vector>

namespace isoloss::model {

std::string ModuleOfParameter(std::string_view parameter) {
  constexpr std::string_view kSuffix = ".weight";
  constexpr std::string_view kExperts = "inner_experts.";
  if (parameter.ends_with(kSuffix)) parameter.remove_suffix(kSuffix.size());
  const size_t experts = parameter.find(kExperts);
  if (experts == std::string_view::npos) return std::string(parameter);
  // "w1_EFD": the letters name its axes.
  const std::string_view matrix = parameter.substr(experts + kExperts.size());
  return std::string(parameter.substr(0, experts))
      .append(matrix.substr(0, matrix.find('_')));
}

void AnnounceParameter(TensorKind kind, const Parameter& parameter,
                       MatrixView<const float> values,
                       const expert_parallel::Mesh& mesh, TapSink& sink,
                       const formats::MxSpec* rowwise,
                       const formats::MxSpec* columnwise) {
  const std::string module = ModuleOfParameter(parameter.name);
  std::vector<size_t> begins;
  TensorRows rows = {.counts = mesh.process() == 0};
  if (parameter.of_experts) {
    const size_t experts = parameter.shape.front();
    for (size_t e = 0; e <= experts; ++e) {
      begins.push_back(values.rows() / experts * e);
    }
    rows = {.begins = begins,
            .first_group = mesh.experts().first,
            .counts = mesh.HoldsFirstCopyOfExperts()};
  }
  sink.OnTensor({.module = module,
                 .kind = kind,
                 .values = values,
                 .rows = rows,
                 .rowwise = rowwise,
                 .columnwise = columnwise});
}

void AnnounceParameters(TensorKind kind, const ParameterSet& parameters,
                        const expert_parallel::Mesh& mesh, TapSink& sink) {
  for (const Parameter& parameter : parameters.parameters()) {
    AnnounceParameter(kind, parameter, parameter.values.view(), mesh, sink);
  }
}

}  // namespace isoloss::model
