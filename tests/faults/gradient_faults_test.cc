// Wrong numbers that look plausible: only the comparison with one rank finds
// them (docs/distributed.md, "Faults").
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "isoloss/formats/bf16.h"
#include "stage.h"

namespace isoloss::faults::gradient_faults_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using transport::OpKind;

constexpr const char* kGate = "layers.2.moe.router.gate.weight";

Scene Against(std::vector<std::string> overrides = {}, int processes = 1) {
  Scene scene;
  scene.overrides = std::move(overrides);
  scene.processes = processes;
  scene.parity = true;
  return scene;
}

void Scale(Matrix<float>& values, float factor) {
  for (size_t i = 0; i < values.size(); ++i) values.data()[i] *= factor;
}

// Cases 1 and 2: expert gradients are divided by the wrong number of ranks.
TEST(GradientFaults, AFactorOfExpertGradientsIsNamed) {
  struct Wrong {
    float factor;
    const char* says;
  };
  for (const Wrong& wrong : {Wrong{0.5F, "norm 0.5000 x that of one rank"},
                             Wrong{2, "norm 2.0000 x that of one rank"},
                             Wrong{4, "norm 4.0000 x that of one rank"}}) {
    Injection injection;
    Scene scene = Against(
        {"parallel.expert_data_parallel=2", "parallel.dispatch_units=2"});
    scene.hooks[0].after_backward = [&](int64_t,
                                        model::ParameterSet& gradients) {
      for (model::Parameter& gradient : gradients.parameters()) {
        if (gradient.of_experts) Scale(gradient.values, wrong.factor);
      }
      injection.Strike();
    };

    ExpectNamed(scene, injection,
                AllOf(StartsWith("gradient of layers.2.moe.routed_experts."),
                      HasSubstr(" at step 1: "), HasSubstr(wrong.says)));
  }
}

// Case 3: a process takes the norm over the experts it has.
TEST(GradientFaults, ANormWithoutTheOthersExpertsIsNamed) {
  Injection injection;
  Scene scene = Against({"train.clip_norm=1e9"}, /*processes=*/2);
  for (int process = 0; process < 2; ++process) {
    scene.faults[process] = NormOfOwnExperts(injection);
  }

  ExpectNamed(scene, injection, StartsWith("gradient norm at step 1: "));
}

// Case 4: a process's share of expert gradients goes to the wrong group.
TEST(GradientFaults, ALostShareOfExpertGradientsIsNamed) {
  Injection injection;
  Scene scene =
      Against({"parallel.expert_data_parallel=2", "parallel.dispatch_units=2"},
              /*processes=*/4);
  scene.hooks[2].after_backward = [&](int64_t, model::ParameterSet& gradients) {
    for (model::Parameter& gradient : gradients.parameters()) {
      if (gradient.of_experts) gradient.values.SetZero();
    }
    injection.Strike();
  };

  ExpectNamed(scene, injection,
              AllOf(StartsWith("gradient of layers.2.moe.routed_experts."),
                    HasSubstr(" at step 1: norm 0.")));
}

// Case 5: a count that an all-reduce has overwritten scales everything.
TEST(GradientFaults, AFactorOfAllGradientsIsNamed) {
  Injection injection;
  Scene scene = Against();
  scene.hooks[0].after_backward = [&](int64_t step,
                                      model::ParameterSet& gradients) {
    if (step != 2) return;
    for (model::Parameter& gradient : gradients.parameters()) {
      Scale(gradient.values, 0.25F);
    }
    injection.Strike();
  };

  ExpectNamed(
      scene, injection,
      "gradient of lm_head.weight at step 2: norm 0.2500 x that of one rank");
}

// Case 6: the router's gradient is that of some tokens.
TEST(GradientFaults, APartialRouterGradientIsNamed) {
  Injection injection;
  Scene scene = Against({}, /*processes=*/2);
  scene.hooks[1].after_backward = [&](int64_t, model::ParameterSet& gradients) {
    gradients.ByName(kGate).values.SetZero();
    injection.Strike();
  };

  ExpectNamed(scene, injection,
              AllOf(StartsWith("gradient of layers.2.moe.router.gate.weight at "
                               "step 1: norm 0."),
                    HasSubstr(" x that of one rank")));
}

// Case 12: something writes NaN into rows that have arrived.
TEST(GradientFaults, ALateFillOfArrivedRowsIsNamed) {
  // Bytes that the row's fingerprint (begin, middle, end) leaves out.
  constexpr size_t kUnwatched = 12;
  Injection injection;
  Scene scene = Against();
  scene.faults[0].on_receive = [&](const Message& message) {
    if (!message.place.Is(1, OpKind::kCombine, 1) ||
        message.payload.size() < kRowBytes || !injection.Once()) {
      return;
    }
    std::fill_n(&message.payload[kUnwatched], 4, std::byte{0xFF});
  };

  ExpectNamed(scene, injection,
              AllOf(StartsWith("loss at step 1: "), HasSubstr("nan")));
}

// Case 26: a bias is kept in BF16.
TEST(GradientFaults, ARoundedExpertBiasIsNamed) {
  Injection injection;
  Scene scene = Against({"train.load_balance_coeff=0.001"});
  scene.hooks[0].after_update = [&](int64_t, model::ParameterSet&,
                                    MatrixView<float> bias) {
    for (size_t i = 0; i < bias.rows() * bias.cols(); ++i) {
      bias.data()[i] = formats::RoundToBf16(bias.data()[i]);
    }
    injection.Strike();
  };

  ExpectNamed(scene, injection,
              StartsWith("expert biases of MoE layer 0 at step 1: "));
}

// Case 32: the backward pass gives the router no gradient.
TEST(GradientFaults, AMissingRouterGradientIsNamed) {
  for (const int processes : {1, 2}) {
    Injection injection;
    Scene scene = Against({}, processes);
    for (int process = 0; process < processes; ++process) {
      scene.hooks[process].after_backward =
          [&](int64_t, model::ParameterSet& gradients) {
            gradients.ByName(kGate).values.SetZero();
            injection.Strike();
          };
    }

    ExpectNamed(scene, injection,
                "gradient of layers.2.moe.router.gate.weight at step 1: norm "
                "0.0000 x that of one rank");
  }
}

// The optimizer's step, which no gradient shows.
TEST(GradientFaults, AWrongUpdateIsNamed) {
  Injection injection;
  Scene scene = Against();
  scene.hooks[0].after_update = [&](int64_t step, model::ParameterSet& weights,
                                    MatrixView<float>) {
    if (step != 2) return;
    float& value = weights.ByName("layers.1.ffn_norm.weight").values(0, 7);
    value = std::nextafter(value, std::numeric_limits<float>::infinity());
    injection.Strike();
  };

  ExpectNamed(scene, injection,
              StartsWith("updated layers.1.ffn_norm.weight at step 2: norm "));
}

}  // namespace
}  // namespace isoloss::faults::gradient_faults_test
