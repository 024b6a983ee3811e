#include "isoloss/runlog/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/sample_graph.h"

namespace isoloss::runlog {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SampleGraph;

TEST(GraphIndex, FindsTensorsAndTheirInputs) {
  const ModelGraph graph = SampleGraph("e4m3");
  const GraphIndex index(graph);

  const auto place = index.Find("layers.0.moe.routed_experts_output");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(graph.tensors.module[*place], "layers.0.moe.routed_experts");
  EXPECT_THAT(index.InputsOf(*place),
              ElementsAre(*index.Find("layers.0.wq_output"),
                          *index.Find("layers.0.moe.router.topk_weights_"
                                      "output")));
  EXPECT_THAT(index.InputsOf(*index.Find("layers.0.wq_weight")), IsEmpty());
  EXPECT_FALSE(index.Find("layers.0.wq").has_value());
}

TEST(CountGemms, CountsProductsOfAllGroups) {
  const GemmCounts counts = CountGemms(SampleGraph("e4m3").recipe);
  EXPECT_EQ(counts.all, 96);
  EXPECT_EQ(counts.quantized, 78);
  EXPECT_EQ(CountGemms(SampleGraph("").recipe).quantized, 0);

  RecipeColumns one = SampleGraph("").recipe;
  one.dgrad_w[1] = "e5m2·rceil";
  EXPECT_EQ(CountGemms(one).quantized, 6);
}

TEST(ModelGraph, KnowsTheBitsOfItsNumbers) {
  ModelGraph other = SampleGraph("e4m3");
  EXPECT_TRUE(other == SampleGraph("e4m3")) << "NaN equals itself";
  other.tensors.initial_std[0] *= 2;
  EXPECT_FALSE(other == SampleGraph("e4m3"));
}

struct Damage {
  const char* name;
  std::function<void(ModelGraph&)> spoil;
  const char* message;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

std::string NameOf(const ::testing::TestParamInfo<Damage>& info) {
  return info.param.name;
}

class DamagedGraphTest : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedGraphTest, IsNamedAndKnowsNoTensor) {
  ModelGraph graph = SampleGraph("e4m3");
  ASSERT_EQ(WrongGraph(graph), "");
  GetParam().spoil(graph);

  EXPECT_THAT(WrongGraph(graph), HasSubstr(GetParam().message));
  EXPECT_FALSE(GraphIndex(graph).Find("layers.0.wq_weight").has_value());
}

const Damage kDamages[] = {
    {"ShortColumn", [](auto& g) { g.tensors.moe.pop_back(); },
     "/graph/moe has 12 values, but /graph/name has 13"},
    {"ShortInputs", [](auto& g) { g.inputs.input.pop_back(); },
     "/graph_inputs/input has"},
    {"TwoNames",
     [](auto& g) {
       g.tensors.name[3] = g.tensors.name[2];
       g.tensors.module[3] = g.tensors.module[2];
     },
     "/graph has in row 3 name"},
    {"NameOfAnotherKind", [](auto& g) { g.tensors.kind[2] = "dgrad"; },
     "the name must be <module>_<kind>"},
    {"UnknownPhase", [](auto& g) { g.tensors.phase[1] = "later"; },
     "phase `later`"},
    {"UnknownRows", [](auto& g) { g.tensors.rows_of[1] = "experts"; },
     "rows_of `experts`"},
    {"WeightWithoutRows", [](auto& g) { g.tensors.rows[0] = 0; },
     "has in row 0 0 rows"},
    {"WeightWithoutParameter", [](auto& g) { g.tensors.parameter[0] = ""; },
     "the number of rows and the parameter"},
    {"ChoiceWithoutLayer", [](auto& g) { g.tensors.moe[4] = ""; },
     "without a MoE layer"},
    {"InputBehind", [](auto& g) { g.inputs.input[0] = 13; }, "input 13"},
    {"InputBefore", [](auto& g) { g.inputs.input[0] = -1; }, "input -1"},
    {"InputOfItself", [](auto& g) { g.inputs.input[0] = g.inputs.tensor[0]; },
     "two"},
    {"TensorBehind", [](auto& g) { g.inputs.tensor.back() = 13; },
     "of tensor 13"},
    {"NotAscending", [](auto& g) { g.inputs.tensor[0] = 12; },
     "tensors must ascend"},
    {"SiteTwice", [](auto& g) { g.recipe.site[1] = g.recipe.site[0]; },
     "/recipe has 2 sites, 1 different ones"},
    {"NoRecipe", [](auto& g) { g.recipe = {}; }, "/recipe has 0 sites"},
};

INSTANTIATE_TEST_SUITE_P(Damages, DamagedGraphTest,
                         ::testing::ValuesIn(kDamages), NameOf);

}  // namespace
}  // namespace isoloss::runlog
