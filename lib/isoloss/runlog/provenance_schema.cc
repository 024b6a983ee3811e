// Defines the parts of a schema that all logs share: the attributes of files
// and the groups of a model's graph and recipe.
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

Columns OriginList() {
  return {
#define ISOLOSS_ORIGIN(type, member, value, name, unit, meaning, domain) \
  {Field{name, unit, meaning, domain}.Optional(), &Origin::member},
#include "isoloss/runlog/provenance.def"
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
  Columns phases = {
      {{"first_step", "step", "First step of the row's phase",
        Domain::Count(2)},
       &PhaseColumns::first_step},
#define ISOLOSS_SITE(type, name, unit, meaning, domain) \
  {{#name, unit, meaning, domain}, &PhaseColumns::name},
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
      {"recipe_phases",
       "The same in the later phases of a recipe that changes in mid-run; then "
       "/recipe has the first phase",
       kPhasesVersion, PartOf(&ModelGraph::phases, phases)},
  };
  schema.back().optional = true;
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
