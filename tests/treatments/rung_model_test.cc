#include "isoloss/treatments/rung_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/presets.h"

namespace isoloss::treatments::rung_model_test {
namespace {

const model::ModelConfig& Nano() {
  return train::PresetByName("dsv3-nano").model;
}

TEST(ScaledModel, ComesWithinAFifthOfTheParameters) {
  for (const double parameters : {0.34e6, 1.3e6, 3e6, 6.7e6, 100e6}) {
    const double found =
        train::EstimatedParameters(ScaledModel(Nano(), parameters));
    EXPECT_LE(std::fabs(std::log(found / parameters)), std::log(1.2))
        << parameters;
  }
}

TEST(ScaledModel, LeavesTheModelThatHasThem) {
  const double parameters = train::EstimatedParameters(Nano());
  const model::ModelConfig same = ScaledModel(Nano(), parameters);
  EXPECT_EQ(same.dim, Nano().dim);
  EXPECT_EQ(same.n_layers, Nano().n_layers);
  EXPECT_EQ(same.moe_hidden_dim, Nano().moe_hidden_dim);
}

TEST(ScaledModel, MultipliesWidthsAndDepthsAndKeepsNumbers) {
  const model::ModelConfig large = ScaledModel(Nano(), 6.7e6);
  const double factor =
      static_cast<double>(large.dim) / static_cast<double>(Nano().dim);
  EXPECT_GT(factor, 2);
  // Half of the layers that rounding may add or take.
  EXPECT_NEAR(static_cast<double>(large.n_layers),
              static_cast<double>(Nano().n_layers) * std::pow(factor, 0.7),
              0.5);
  EXPECT_EQ(large.num_experts, Nano().num_experts);
  EXPECT_EQ(large.top_k, Nano().top_k);
  EXPECT_EQ(large.n_heads, Nano().n_heads);
  EXPECT_EQ(large.moe_hidden_dim % 8, 0u);
}

TEST(ScaledModel, RefusesSizesThatTheShapeCantHave) {
  EXPECT_THROW(ScaledModel(Nano(), 10), Error);
}

TEST(NearestModel, IsTheScaledOneOrTheNearestThatTheShapeHas) {
  EXPECT_EQ(NearestModel(Nano(), 3e6).dim, ScaledModel(Nano(), 3e6).dim);
  EXPECT_EQ(NearestModel(Nano(), 10).dim, 8u);
}

TEST(TransferredRate, FollowsThePowerOfTheWidth) {
  model::ModelConfig wide = Nano();
  wide.dim = 4 * Nano().dim;
  EXPECT_EQ(TransferredRate(1e-3, Nano(), wide, -0.5), 0.5e-3);
  EXPECT_EQ(TransferredRate(1e-3, Nano(), wide, -1), 0.25e-3);
  EXPECT_EQ(TransferredRate(1e-3, Nano(), wide, 0), 1e-3);
  EXPECT_EQ(TransferredRate(1e-3, wide, Nano(), -0.5), 2e-3);
}

// Runs of ladders that began with the root keep their rates.
TEST(TransferredRate, OfTheRootHasItsBits) {
  model::ModelConfig wide = Nano();
  for (wide.dim = 8; wide.dim <= 8192; wide.dim += 8) {
    const double quotient =
        static_cast<double>(Nano().dim) / static_cast<double>(wide.dim);
    EXPECT_EQ(TransferredRate(0.012, Nano(), wide, -0.5),
              0.012 * std::sqrt(quotient))
        << wide.dim;
  }
}

}  // namespace
}  // namespace isoloss::treatments::rung_model_test
