// The attributes of files and the groups of a model's graph and recipe: what
// all logs share.
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

constexpr bool kCircumstance = false;  // who, where and how, not what

Columns AttributeList() {
  using P = Provenance;
  const auto text = [](const char* name, const char* description, auto value,
                       int64_t since = 1, bool reproducible = true) {
    return Column(
        Field{name, "", description, Domain::Text(), since, reproducible},
        value);
  };
  const auto number = [](const char* name, const char* unit,
                         const char* description, const Domain& domain,
                         auto value, int64_t since = 1,
                         bool reproducible = true) {
    return Column(Field{name, unit, description, domain, since, reproducible},
                  value);
  };
  const Domain count = Domain::Count(1);
  const Domain nats = Domain::Real(0, 1e3).OrNan();
  return {
      text("tool_version", "Program and version that made the run",
           &P::tool_version, 1, kCircumstance),
      text("commit", "Commit of its source, `-dirty` if modified, or `unknown`",
           &P::commit, 1, kCircumstance),
      text("compiler", "Compiler that built it", &P::compiler, 1,
           kCircumstance),
      text("cpu_target", "Instruction set the kernels ran on", &P::cpu_target,
           1, kCircumstance),
      text("experiment_name", "Name of the experiment", &P::experiment_name, 1,
           kCircumstance),
      text("experiment_text",
           "The resolved experiment without `train.seeds`, TOML",
           &P::experiment_text, 1, kCircumstance),
      text("experiment_digest", "Digest of `experiment_text`",
           &P::experiment_digest, 1, kCircumstance),
      text("config_digest",
           "Digest of the configuration that two runs must share to be "
           "compared; neither seed nor arm is part of it",
           &P::config_digest),
      text("arm", "Name of the arm", &P::arm),
      text("baseline_arm", "The experiment's first arm", &P::baseline_arm),
      text("recipe", "Name of the arm's precision recipe", &P::recipe),
      text("resolved_recipe", "What each GEMM site got, one line per site",
           &P::resolved_recipe),
      text("corpus_description", "Where the training text came from",
           &P::corpus_description, 1, kCircumstance),
      text("corpus_digest", "Digest of the training text", &P::corpus_digest),
      text("initial_weights_digest", "Digest of the weights before step 1",
           &P::initial_weights_digest),
      text("final_weights_digest", "Digest of the weights after the last step",
           &P::final_weights_digest),
      number("seed", "1", "Seed of the run", Domain::Seed(), &P::seed),
      number("steps_planned", "step", "Optimizer steps the experiment asks for",
             count, &P::steps_planned),
      number("tokens_per_step", "token", "Tokens in each step", count,
             &P::tokens_per_step),
      number("parameters", "1", "Number of trained values", count,
             &P::parameters),
      number("workers", "thread", "Threads of the run; no result depends on it",
             count, &P::workers, 1, kCircumstance),
      text("transport", "How bytes travelled; no result depends on it",
           &P::transport, 2, kCircumstance),
      number("processes", "process",
             "Processes that shared the ranks; no result depends on it", count,
             &P::processes, 2, kCircumstance),
      number("ranks", "rank", "Virtual ranks", count, &P::ranks, 2),
      number("expert_data_parallel", "1", "Copies of each expert", count,
             &P::expert_data_parallel, 2),
      number("ranks_per_node", "rank", "Ranks of a modelled node", count,
             &P::ranks_per_node, 2),
      text("exchange", "The arm's exchange options, one line", &P::exchange, 2),
      text("routing", "Who chose the experts", &P::routing, 2),
      {Field{"perturbation", "",
             "What the initial weights were perturbed by on purpose; absent if "
             "by nothing",
             Domain::Text()}
           .Optional(),
       &P::perturbation},
      text("numerics_digest",
           "Digest of a small fixed training with the arm's recipe and "
           "exchange: equal numerics, equal digest",
           &P::numerics_digest, 3),
      number("quantized_gemms_per_step", "call",
             "GEMM calls with a quantised operand that the recipe asks for per "
             "step, counted alike",
             Domain::Count(), &P::quantized_gemms_per_step),
      number("gemms_per_step", "call",
             "GEMM calls per step in all, counted alike", Domain::Count(),
             &P::gemms_per_step),
      number("unigram_entropy_nats", "nat",
             "Unigram entropy of the training share; NaN if unknown", nats,
             &P::unigram_entropy_nats),
      number("entropy_floor_nats", "nat",
             "Entropy rate of a synthetic source; NaN if unknown", nats,
             &P::entropy_floor_nats),
      number("bigram_entropy_nats", "nat",
             "Entropy of a token of the training share given the one before "
             "it; NaN if unknown",
             nats, &P::bigram_entropy_nats, 6),
      number("deflated_bits", "bit",
             "Bits per token of the training share when deflate has "
             "compressed it, or its beginning; it depends on the library's "
             "version. NaN if unknown",
             nats, &P::deflated_bits, 6, kCircumstance),
      text("complete", "True if all planned steps were run", &P::complete),
  };
}

/// Absent where isoloss itself has trained the run, as of each that it keeps a
/// journal of.
Columns OriginList() {
  using O = Origin;
  const auto of = [](const char* name, const char* unit,
                     const char* description, const Domain& domain,
                     auto value) {
    return Column(Field{name, unit, description, domain}.Optional(), value);
  };
  const Domain half_unit = Domain::Real(0, kMostFp32);
  return {
      of("origin", "",
         "Format of the log that it was read from, or who recorded it; "
         "absent: isoloss trained the run",
         Domain::Text(), &O::format),
      of("loss_values", "1",
         "What a loss is: absent: of its step; 1: mean over the interval; "
         "2: mean of a chart's bucket; 3: smoothed",
         Domain::Count(0, 3), &O::loss_values),
      of("loss_thinned", "", "Points of the curve were left out; absent: none",
         Domain::Text(), &O::loss_thinned),
      of("top_k", "1",
         "Experts that each token of a step has in every MoE layer; absent: "
         "nobody told, or routers see other tokens than labels count",
         Domain::Count(), &O::top_k),
      of("loss_half_unit", "nat",
         "Half a unit of the last digit of a loss; absent: all are there",
         half_unit, &O::loss_half_unit),
      of("lr_half_unit", "1",
         "Half a unit of the last digit of a learning rate; likewise",
         half_unit, &O::lr_half_unit),
  };
}

Column Text(const char* name, const char* description, auto values) {
  return Column({name, "", description, Domain::Text()}, values).Required();
}

Column Number(const char* name, const char* unit, const char* description,
              const Domain& domain, auto values) {
  return Column({name, unit, description, domain}, values).Required();
}

Columns GraphList() {
  using C = GraphColumns;
  return {
      Text("name", "<module>_<kind>", &C::name),
      Text("module", "torchtitan's name of the module", &C::module),
      Text("kind",
           "`weight`, `activation`, `output`, `gradient`, `dgrad`, `wgrad`, "
           "`parameter`, `update` or `expert_ids`",
           &C::kind),
      Text("phase", "`forward`, `backward` or `optimizer`", &C::phase),
      Text("parameter", "Parameter that it is of; empty: none", &C::parameter),
      Text("site", "GEMM site that reads or gives it; empty: none", &C::site),
      Text("moe",
           "MoE layer whose choice of experts decides on its rows or slots; "
           "empty: none",
           &C::moe),
      Text("rows_of",
           "What rows stand for: `tokens`, `expert_tokens` (pairs of token "
           "and slot) or `parameter`",
           &C::rows_of),
      Number("rows", "1", "Rows of a parameter's; 0: as the step has them",
             Domain::Count(), &C::rows),
      Number("columns", "1", "Values of a row", Domain::Count(1), &C::columns),
      Number("initial_std", "1",
             "Standard deviation of a weight's initial values; 0: all are 1; "
             "NaN: no weight",
             Domain::Real(0).OrNan().Accusing(Fault::kFile), &C::initial_std),
      Number("initial_cut", "1",
             "Magnitude above which they are drawn again; NaN: no weight",
             Domain::Real(0).OrNan().OrInfinity().Accusing(Fault::kFile),
             &C::initial_cut),
  };
}

Columns RecipeList() {
  using C = RecipeColumns;
  return {
      Text("site", "Name of the site", &C::site),
      Number("groups", "call", "GEMM calls of each of the three products",
             Domain::Count(1), &C::groups),
      Text("fprop_x", "x in y = x W^T", &C::fprop_x),
      Text("fprop_w", "W in y = x W^T", &C::fprop_w),
      Text("dgrad_dy", "dy in dx = dy W", &C::dgrad_dy),
      Text("dgrad_w", "W in dx = dy W", &C::dgrad_w),
      Text("wgrad_dy",
           "dy in dW = dy^T x; ` again` behind it: what dgrad made of dy is "
           "quantised once more; ` to bf16`: dW is rounded",
           &C::wgrad_dy),
      Text("wgrad_x", "x in dW = dy^T x; ` again` as for dy", &C::wgrad_x),
  };
}

Schema GraphSchema() {
  using G = ModelGraph;
  return {
      {"graph", "The tensors of a training step, in the order of announcement",
       kGraphVersion, PartOf(&G::tensors, GraphList())},
      {"graph_inputs", "What the operation behind each tensor reads",
       kGraphVersion,
       PartOf(&G::inputs,
              Columns{Number("tensor", "1", "Place in /graph, ascending",
                             Domain::Count(), &GraphInputs::tensor),
                      Number("input", "1",
                             "Place in /graph of a tensor that is read",
                             Domain::Count(), &GraphInputs::input)})},
      {"recipe",
       "What each GEMM site got: element format and scale rule of each "
       "operand and what else is not usual; empty: not quantised. Behind a "
       "space, ` in ` before how sums are made",
       kGraphVersion, PartOf(&G::recipe, RecipeList())},
  };
}

}  // namespace

const Group& AttributeGroup() {
  static const Group group("", "", 1, AttributeList());
  return group;
}

const Group& OriginGroup() {
  static const Group group("", "", 1,
                           PartOf(&Provenance::origin, OriginList()));
  return group;
}

template <>
const Schema& SchemaOf<ModelGraph>() {
  static const Schema schema = GraphSchema();
  return schema;
}

template <>
const Schema& SchemaOf<Provenance>() {
  static const Schema schema = Joined(
      {{AttributeGroup()}, PartOf(&Provenance::graph, SchemaOf<ModelGraph>())});
  return schema;
}

Schema FileSchema() {
  return Joined({{AttributeGroup(), OriginGroup()},
                 PartOf(&Provenance::graph, SchemaOf<ModelGraph>())});
}

}  // namespace isoloss::runlog
