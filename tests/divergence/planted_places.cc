#include "planted_places.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "isoloss/model/graph.h"

namespace isoloss::compare {
namespace {

using train::RunHooks;

/// Views announced are of storage that the model goes on with, or of copies
/// made to be announced; neither is const.
MatrixView<float> Mutable(MatrixView<const float> values) {
  return {const_cast<float*>(values.data()), values.rows(), values.cols(),
          values.stride()};
}

/// A tensor as it is announced.
Place Tensor(int64_t step, const std::string& name, int bit = kBf16Bit) {
  return InTensor(step, name, Flip(bit));
}

using ParameterHook = std::function<void(int64_t, model::ParameterSet&)>;

ParameterHook InParameter(const std::string& parameter, int64_t step, int bit,
                          bool& planted) {
  return [=, &planted](int64_t now, model::ParameterSet& set) {
    if (now != step) return;
    planted = Flip(bit)(set.ByName(parameter).values.view());
  };
}

std::string NameOf(const std::string& parameter, model::TensorKind kind) {
  const auto graph = model::GraphOf(model::ModelConfig());
  const auto found = std::ranges::find_if(
      graph.tensors, [&](const model::GraphTensor& tensor) {
        return tensor.parameter == parameter && tensor.kind == kind;
      });
  return found->Name();
}

Place InitialWeight(const std::string& parameter) {
  return {"initial " + parameter, 1,
          NameOf(parameter, model::TensorKind::kWeight),
          [=](RunHooks& hooks, int64_t, bool& planted) {
            hooks.edit_initial_weights = [=, &planted](model::ParameterSet& s) {
              InParameter(parameter, 0, kBf16Bit, planted)(0, s);
            };
          }};
}

/// One gradient of a process, before they are added up.
Place OwnGradient(int64_t step, const std::string& parameter) {
  return {"own gradient of " + parameter, step,
          NameOf(parameter, model::TensorKind::kWgrad),
          [=](RunHooks& hooks, int64_t s, bool& planted) {
            hooks.after_backward = InParameter(parameter, s, kLastBit, planted);
          }};
}

Place Gradient(int64_t step, const std::string& parameter) {
  return {"gradient of " + parameter, step,
          NameOf(parameter, model::TensorKind::kWgrad),
          [=](RunHooks& hooks, int64_t s, bool& planted) {
            hooks.before_update = InParameter(parameter, s, kLastBit, planted);
          }};
}

Place UpdatedWeight(int64_t step, const std::string& parameter) {
  return {"updated " + parameter, step,
          NameOf(parameter, model::TensorKind::kParameter),
          [=](RunHooks& hooks, int64_t s, bool& planted) {
            const auto plant = InParameter(parameter, s, kLastBit, planted);
            hooks.after_update = [=](int64_t now, model::ParameterSet& weights,
                                     MatrixView<float>) {
              plant(now, weights);
            };
          }};
}

constexpr const char* kRouter = "layers.1.moe.router";

/// A token's two experts change places, their weights do not.
Place SwappedExperts(int64_t step) {
  return {"two experts of a token swapped", step,
          std::string(kRouter) + "_expert_ids",
          [](RunHooks& hooks, int64_t s, bool& planted) {
            hooks.on_routing = [=, &planted](int64_t now, std::string_view,
                                             MatrixView<const int32_t> ids) {
              if (now != s) return;
              auto* row = const_cast<int32_t*>(ids.Row(ids.rows() / 2));
              std::swap(row[0], row[1]);
              planted = row[0] != row[1];
            };
          }};
}

/// A token's first expert is another one.
Place OtherExpert(int64_t step) {
  return {"another expert for a token", step,
          std::string(kRouter) + "_expert_ids",
          [](RunHooks& hooks, int64_t s, bool& planted) {
            hooks.on_routing = [=, &planted](int64_t now, std::string_view,
                                             MatrixView<const int32_t> ids) {
              if (now != s) return;
              auto* row = const_cast<int32_t*>(ids.Row(ids.rows() / 2));
              do {
                row[0] = (row[0] + 1) % 8;
              } while (row[0] == row[1]);
              planted = true;
            };
          }};
}

const char* const kGate = "layers.1.moe.router.gate.weight";
const char* const kExpert = "layers.1.moe.routed_experts.inner_experts.w2_EDF";

}  // namespace

float* ElementOf(MatrixView<float> values) {
  const size_t size = values.rows() * values.cols();
  for (size_t i = 0; i < size; ++i) {
    const size_t place = (size / 2 + i) % size;
    float& value = values(place / values.cols(), place % values.cols());
    if (value != 0) return &value;
  }
  return nullptr;
}

Change Flip(int bit) {
  return [bit](MatrixView<float> values) {
    float* element = ElementOf(values);
    if (element == nullptr) return false;
    *element = std::bit_cast<float>(std::bit_cast<uint32_t>(*element) ^
                                    (uint32_t{1} << bit));
    return true;
  };
}

Place InTensor(int64_t step, const std::string& name, const Change& change) {
  return {name, step, name, [=](RunHooks& hooks, int64_t s, bool& planted) {
            hooks.on_tensor = [=, &planted](int64_t now,
                                            const model::Tensor& tensor) {
              if (now != s || tensor.Name() != name) return;
              planted = change(Mutable(tensor.values));
            };
          }};
}

std::vector<Place> AllPlaces() {
  const std::string a = "layers.0.attention";
  const std::string m = "layers.1.moe";
  const std::string e = m + ".routed_experts";
  return {
      // Forward.
      InitialWeight("tok_embeddings.weight"),
      InitialWeight(a + ".wkv_b.weight"),
      InitialWeight(kExpert),
      Tensor(2, "tok_embeddings_output"),
      Tensor(1, "layers.0.attention_norm_output"),
      Tensor(2, a + ".wq_a_activation"),
      Tensor(5, a + ".wkv_a_output"),
      Tensor(2, a + ".q_norm_output"),
      Tensor(1, a + ".wq_b_output"),
      Tensor(2, a + ".kv_norm_output"),
      Tensor(5, a + ".wkv_b_output"),
      Tensor(2, a + ".q_pe_rotated_output"),
      Tensor(1, a + ".k_pe_rotated_output"),
      Tensor(2, a + ".inner_attention_output"),
      Tensor(5, a + ".wo_output"),
      Tensor(2, "layers.0.attention_residual_output"),
      Tensor(1, "layers.0.feed_forward.w1_output"),
      Tensor(2, "layers.0.feed_forward.w2_activation"),
      Tensor(5, "layers.0_output"),
      Tensor(2, "layers.1.ffn_norm_output"),
      Tensor(2, "norm_output"),
      Tensor(1, "lm_head_output"),
      Tensor(5, "loss_output", kLastBit),
      // Routing.
      Tensor(1, m + ".router.gate_activation"),
      Tensor(2, m + ".router.gate_output", kLastBit),
      Tensor(5, m + ".router.scores_output", kLastBit),
      Tensor(2, m + ".router.topk_weights_output", kLastBit),
      SwappedExperts(2),
      OtherExpert(5),
      // Experts and combine.
      Tensor(1, e + ".w1_activation"),
      Tensor(2, e + ".w3_activation"),
      Tensor(5, e + ".w1_output"),
      Tensor(1, e + ".w3_output"),
      Tensor(2, e + ".w2_activation"),
      Tensor(5, e + ".w2_output"),
      Tensor(2, e + "_output"),
      Tensor(1, m + ".shared_experts.w1_output"),
      Tensor(5, m + ".shared_experts.w2_output"),
      Tensor(2, m + "_output"),
      // Gradients of activations.
      Tensor(1, "lm_head_gradient"),
      Tensor(2, "lm_head_dgrad"),
      Tensor(5, "norm_gradient"),
      Tensor(2, "layers.1_gradient"),
      Tensor(1, e + ".w2_gradient"),
      Tensor(2, e + ".w2_dgrad"),
      Tensor(5, e + ".w1_dgrad"),
      Tensor(2, e + ".w3_dgrad"),
      Tensor(1, m + ".router.topk_weights_gradient", kLastBit),
      Tensor(2, m + ".router.gate_gradient", kLastBit),
      Tensor(5, m + ".router.gate_dgrad", kLastBit),
      Tensor(2, m + ".shared_experts.w2_dgrad"),
      Tensor(1, "layers.1.ffn_norm_gradient"),
      Tensor(2, a + ".wo_dgrad"),
      Tensor(5, a + ".inner_attention.q_gradient"),
      Tensor(1, a + ".inner_attention.k_gradient"),
      Tensor(2, a + ".wkv_b_gradient"),
      Tensor(5, "tok_embeddings_gradient"),
      // Gradients of weights, and the optimizer.
      OwnGradient(1, "lm_head.weight"),
      OwnGradient(5, kExpert),
      Gradient(2, a + ".wo.weight"),
      Gradient(5, kGate),
      Gradient(1, kExpert),
      Gradient(2, "layers.0.attention_norm.weight"),
      UpdatedWeight(1, "tok_embeddings.weight"),
      UpdatedWeight(2, "norm.weight"),
      UpdatedWeight(2, kExpert),
      UpdatedWeight(5, kGate),
      Tensor(2, "lm_head_update", kLastBit),
  };
}
}  // namespace isoloss::compare
