#include "isoloss/model/announce.h"

#include <vector>

namespace isoloss::model {

void AnnounceParameter(Tensor tensor, const Parameter& parameter,
                       const expert_parallel::Mesh& mesh, TapSink& sink) {
  std::vector<size_t> begins;
  tensor.module = parameter.module;
  tensor.rows = {.counts = mesh.process() == 0};
  if (parameter.of_experts) {
    const size_t experts = parameter.shape.front();
    for (size_t e = 0; e <= experts; ++e) {
      begins.push_back(tensor.values.rows() / experts * e);
    }
    tensor.rows = {.begins = begins,
                   .first_group = mesh.experts().first,
                   .counts = mesh.HoldsFirstCopyOfExperts()};
  }
  sink.OnTensor(tensor);
}

void AnnounceParameters(TensorKind kind, const ParameterSet& parameters,
                        const expert_parallel::Mesh& mesh, TapSink& sink) {
  for (const Parameter& parameter : parameters.parameters()) {
    AnnounceParameter({.kind = kind, .values = parameter.values.view()},
                      parameter, mesh, sink);
  }
}

}  // namespace isoloss::model
