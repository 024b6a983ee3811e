#include "isoloss/runlog/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/sample_graph.h"

namespace isoloss::runlog::model_graph_test {
namespace {

using test_support::SampleGraph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST(ModelGraph, MayHaveNormsAndProductsOfModulesInRecipe) {
  ModelGraph graph = SampleGraph("");
  test_support::AddSite("layers.0.moe.routed_experts", 1, "e4m3·rceil", graph);
  test_support::AddSite("layers.0.moe.routed_experts.scores", 1, "", graph);

  EXPECT_EQ(WrongGraph(graph), "");
  EXPECT_EQ(CountGemms(graph.recipe).quantized, 3);
}

TEST(ModelGraph, HasTheRecipeOfEachPhase) {
  ModelGraph graph = SampleGraph("e4m3");
  AddPhase({5, SampleGraph("").recipe}, graph);
  AddPhase({9, SampleGraph("e5m2").recipe}, graph);

  const std::vector<RecipePhase> phases = PhasesOf(graph);
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[1].first_step, 5);
  EXPECT_TRUE(phases[1].recipe == SampleGraph("").recipe);
  EXPECT_EQ(PhaseAt(phases, 0), 0u);
  EXPECT_EQ(PhaseAt(phases, 4), 0u);
  EXPECT_EQ(PhaseAt(phases, 5), 1u);
  EXPECT_EQ(PhaseAt(phases, 100), 2u);
  EXPECT_TRUE(GraphOfStep(graph, 9) == SampleGraph("e5m2"));
  EXPECT_EQ(WrongGraph(graph), "");
  graph.phases.first_step.back() = 8;
  EXPECT_THAT(WrongGraph(graph), HasSubstr("phases must ascend from step 2"));
  graph.phases.first_step.back() = 10;
  EXPECT_THAT(WrongGraph(graph), HasSubstr("/recipe has"));
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

size_t Place(const ModelGraph& graph, const std::string& name) {
  return static_cast<size_t>(std::ranges::find(graph.tensors.name, name) -
                             graph.tensors.name.begin());
}

/// Of input number `input` of a tensor.
size_t InputRow(const ModelGraph& graph, const std::string& name,
                size_t input) {
  const auto place = static_cast<int64_t>(Place(graph, name));
  const auto& tensors = graph.inputs.tensor;
  return static_cast<size_t>(std::ranges::find(tensors, place) -
                             tensors.begin()) +
         input;
}

std::function<void(ModelGraph&)> DropInput(const char* name, size_t input) {
  return [=](ModelGraph& graph) {
    const auto row = static_cast<ptrdiff_t>(InputRow(graph, name, input));
    graph.inputs.tensor.erase(graph.inputs.tensor.begin() + row);
    graph.inputs.input.erase(graph.inputs.input.begin() + row);
  };
}

const Damage kDamages[] = {
    {"ShortColumn", [](auto& g) { g.tensors.moe.pop_back(); },
     "/graph/moe has 21 values, but /graph/name has 22"},
    {"ShortInputs", [](auto& g) { g.inputs.input.pop_back(); },
     "/graph_inputs/input has"},
    {"TwoNames",
     [](auto& g) {
       g.tensors.name[3] = g.tensors.name[2];
       g.tensors.kind[3] = g.tensors.kind[2];
     },
     "/graph has in row 3 name `layers.0.moe.router.gate_activation`"},
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
    {"ChoiceWithoutLayer", [](auto& g) { g.tensors.moe[5] = ""; },
     "without a MoE layer"},
    {"InputBehind", [](auto& g) { g.inputs.input[0] = 22; }, "input 22"},
    {"InputBefore", [](auto& g) { g.inputs.input[0] = -1; }, "input -1"},
    {"InputOfItself", [](auto& g) { g.inputs.input[0] = g.inputs.tensor[0]; },
     "places in the 22 rows"},
    {"TensorBehind", [](auto& g) { g.inputs.tensor.back() = 22; },
     "of tensor 22"},
    {"NotAscending", [](auto& g) { g.inputs.tensor[0] = 21; },
     "tensors must ascend"},
    {"SiteTwice", [](auto& g) { g.recipe.site[1] = g.recipe.site[0]; },
     "/recipe has 2 sites, 1 different ones"},
    {"RowOfNoModule",
     [](auto& g) { test_support::AddSite("layers.0.nothing", 1, "", g); },
     "/recipe has 3 sites, 3 different ones, and /graph 2"},
    {"SiteWithoutRow",
     [](auto& g) { g.recipe.site[1] = "layers.0.moe.routed_experts"; },
     "/recipe has 2 sites, 2 different ones"},
    {"InputLater", [](auto& g) { g.inputs.input[0] = 3; }, "what comes later"},
    {"KindOfAnotherPhase", [](auto& g) { g.tensors.phase[2] = "backward"; },
     "phase `backward`"},
    {"RowsOfAnotherKind", [](auto& g) { g.tensors.rows_of[2] = "parameter"; },
     "rows_of `parameter` of kind `activation`"},
    {"WeightFromSomething",
     [](auto& g) {
       g.inputs.tensor.insert(g.inputs.tensor.begin(), 1);
       g.inputs.input.insert(g.inputs.input.begin(), 0);
     },
     "has 1 inputs of `layers.0.moe.router.gate_weight`"},
    {"ActivationFromNothing", DropInput("layers.0.wq_activation", 0),
     "has 0 inputs of `layers.0.wq_activation`"},
    {"ChoiceFromNothing", DropInput("layers.0.moe.router_expert_ids", 0),
     "has 0 inputs of `layers.0.moe.router_expert_ids`"},
    {"ChoiceFromTwo",
     [](auto& g) {
       const auto place = std::ranges::find(g.inputs.tensor, 5);
       g.inputs.input.insert(
           g.inputs.input.begin() + (place - g.inputs.tensor.begin()), 3);
       g.inputs.tensor.insert(place, 5);
     },
     "has 2 inputs of `layers.0.moe.router_expert_ids`"},
    {"RowsDoNotReturn", DropInput("layers.0.moe.routed_experts_output", 0),
     "lacks a tensor that reads `layers.0.wq_output`"},
    {"GradientWithoutExperts",
     DropInput("layers.0.moe.router.topk_weights_gradient", 1),
     "lacks a tensor that reads `layers.0.wq_output`"},
    {"GradientOfRowsIsLost", DropInput("layers.0.moe.router.gate_gradient", 1),
     "lacks a tensor that reads `layers.0.wq_dgrad`"},
    {"TwoLosses", DropInput("layers.0.moe.routed_experts_output", 1),
     "has 2 outputs that nothing reads"},
    {"OutputWithoutWeight", DropInput("layers.0.wq_output", 1),
     "the output of site `layers.0.wq` reads its weight"},
    {"DgradWithoutGradient", DropInput("layers.0.wq_dgrad", 0),
     "the dgrad of site `layers.0.wq` reads its gradient"},
    {"WgradWithoutActivation", DropInput("layers.0.wq_wgrad", 1),
     "the wgrad of site `layers.0.wq` reads its activation"},
    {"UpdateOfAnother",
     [](auto& g) { g.inputs.input[InputRow(g, "layers.0.wq_update", 0)] = 14; },
     "lacks a tensor that reads `layers.0.wq_wgrad`"},
    {"SiteWithoutGradient",
     [](auto& g) { g.tensors.site[Place(g, "layers.0.wq_gradient")] = ""; },
     "/graph has no gradient of site `layers.0.wq`"},
    {"SiteOfTwoOutputs", [](auto& g) { g.tensors.site[10] = "layers.0.wq"; },
     "kind `output` of site `layers.0.wq`"},
    {"SiteOfAChoice", [](auto& g) { g.tensors.site[5] = "layers.0.wq"; },
     "kind `expert_ids` of site `layers.0.wq`"},
    {"TwoParameters",
     [](auto& g) {
       g.tensors.parameter[Place(g, "layers.0.wq_update")] = "other";
     },
     "/graph has no weight of parameter `other`"},
    {"GradientOfAnotherExtent",
     [](auto& g) { g.tensors.rows[Place(g, "layers.0.wq_wgrad")] = 1; },
     "name `layers.0.wq_wgrad` with 1 x 100 values"},
    {"TwoChoices", [](auto& g) { g.tensors.moe[6] = "layers.1.moe"; },
     "/graph has 0 output of tokens of MoE layer `layers.0.moe`"},
    {"NoRecipe", [](auto& g) { g.recipe = {}; }, "/recipe has 0 sites"},
};

INSTANTIATE_TEST_SUITE_P(Damages, DamagedGraphTest,
                         ::testing::ValuesIn(kDamages), NameOf);

}  // namespace
}  // namespace isoloss::runlog::model_graph_test
