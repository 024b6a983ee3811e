#include "isoloss/model/tap.h"

#include <array>

namespace isoloss::model {

std::string_view TensorKindName(TensorKind kind) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "weight", "activation", "output", "gradient",  "dgrad",
      "wgrad",  "parameter",  "update", "expert_ids"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Tensor::Name() const {
  const std::string_view tensor = TensorKindName(kind);
  std::string name;
  name.reserve(module.size() + 1 + tensor.size());
  return name.append(module).append("_").append(tensor);
}

void Announce(Tensor tensor, Memory& memory, TapSink& sink) {
  const HostRows<float> rows(tensor.values, memory);
  tensor.values = rows.view();
  sink.OnTensor(tensor);
}

}  // namespace isoloss::model
