#include "isoloss/model/announce.h"

#include <vector>

namespace isoloss::model {

void AnnounceParameter(TensorKind kind, const Parameter& parameter,
                       MatrixView<const float> values,
                       const expert_parallel::Mesh& mesh, TapSink& sink,
                       Tensor tensor) {
  std::vector<size_t> begins;
  tensor.module = parameter.module;
  tensor.kind = kind;
  tensor.values = values;
  tensor.rows = {.counts = mesh.process() == 0};
  if (parameter.of_experts) {
    const size_t experts = parameter.shape.front();
    for (size_t e = 0; e <= experts; ++e) {
      begins.push_back(values.rows() / experts * e);
    }
    tensor.rows = {.begins = begins,
                   .first_group = mesh.experts().first,
                   .counts = mesh.HoldsFirstCopyOfExperts()};
  }
  Announce(tensor, parameter.values.memory(), sink);
}

void AnnounceParameters(TensorKind kind, const ParameterSet& parameters,
                        const expert_parallel::Mesh& mesh, TapSink& sink) {
  for (const Parameter& parameter : parameters.parameters()) {
    AnnounceParameter(kind, parameter, parameter.values.view(), mesh, sink);
  }
}

}  // namespace isoloss::model
