// The attributes of files and the groups of a model's graph and recipe: what
// all logs share.
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

Columns AttributeList() {
  return {
#define ISOLOSS_ATTRIBUTE(type, name, value, unit, meaning, domain, ...) \
  {Field{#name, unit, meaning, domain} __VA_ARGS__, &Provenance::name},
#include "isoloss/runlog/provenance.def"
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

Schema GraphSchema() {
  const Columns graph = {
#define ISOLOSS_GRAPH(type, name, unit, meaning, domain) \
  {{#name, unit, meaning, domain}, &GraphColumns::name},
#include "isoloss/runlog/provenance.def"
  };
  const Columns inputs = {
#define ISOLOSS_INPUT(type, name, unit, meaning, domain) \
  {{#name, unit, meaning, domain}, &GraphInputs::name},
#include "isoloss/runlog/provenance.def"
  };
  const Columns recipe = {
#define ISOLOSS_SITE(type, name, unit, meaning, domain) \
  {{#name, unit, meaning, domain}, &RecipeColumns::name},
#include "isoloss/runlog/provenance.def"
  };
  Schema schema = {
      {"graph", "The tensors of a training step, in the order of announcement",
       kGraphVersion, PartOf(&ModelGraph::tensors, graph)},
      {"graph_inputs", "What the operation behind each tensor reads",
       kGraphVersion, PartOf(&ModelGraph::inputs, inputs)},
      {"recipe",
       "What each GEMM site got: element format and scale rule of each "
       "operand and what else is not usual; empty: not quantised. Behind a "
       "space, ` in ` before how sums are made",
       kGraphVersion, PartOf(&ModelGraph::recipe, recipe)},
  };
  for (Group& group : schema) {
    for (Column& column : group.columns) column.required = true;
  }
  return schema;
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
