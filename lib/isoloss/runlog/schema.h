// Every group, dataset and attribute of a run log: its name, unit, meaning and
// place in memory, listed once. Writer, reader and `isoloss show --schema`
// follow it.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "isoloss/runlog/domain.h"
#include "isoloss/runlog/field.h"
#include "isoloss/runlog/graph_schema.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Calls visit(field, part of each of `steps`...) for every step column.
/// `steps` are StepColumns, StepRows or both.
template <typename Visit, typename... Steps>
void VisitSteps(Visit&& visit, Steps&... steps) {
  visit(Field{"step", "step", "Number of the optimizer step, from 1",
              Domain::Step()},
        steps.step...);
  visit(Field{"tokens_seen", "token", "Tokens trained on after this step",
              Domain::Count(1).With(Relation::kTokensSeen)},
        steps.tokens_seen...);
  visit(Field{"loss_nats", "nat",
              "Mean training loss over the step's labels, before its update",
              Domain::Positive(kMostFp32)}
            .At(Turn::kLoss),
        steps.loss_nats...);
  visit(
      Field{"grad_norm", "1", "Global L2 norm of the gradient before clipping",
            Domain::Norm().With(Relation::kNorms)}
          .At(Turn::kGradient),
      steps.grad_norm...);
  visit(Field{"lr", "1", "Learning rate of the update", Domain::Real(0, 1)},
        steps.lr...);
  visit(Field{"step_seconds", "s", "Wall-clock time of the step",
              Domain::Seconds().With(Relation::kThroughput), 1, false},
        steps.step_seconds...);
  visit(
      Field{"tokens_per_second", "token/s", "Tokens of the step over its time",
            Domain::Real(0).With(Relation::kThroughput), 1, false},
      steps.tokens_per_second...);
  visit(Field{"expert_load_max_over_mean", "1",
              "Busiest expert's tokens over the mean, in the worst MoE layer",
              Domain::Real(1).OrNan().With(Relation::kLoad)},
        steps.expert_load_max_over_mean...);
  visit(Field{"dead_experts", "expert",
              "Experts without a token, summed over MoE layers",
              Domain::Count().With(Relation::kDeadExperts)},
        steps.dead_experts...);
  visit(Field{"quantized_gemms", "call",
              "GEMM calls with a quantised operand that were executed; what "
              "processes repeat counts once",
              Domain::Count()},
        steps.quantized_gemms...);
  visit(Field{"nonfinite_gradients", "1",
              "Gradient elements that are NaN or infinite, of all parameters",
              Domain::Zero(), 3},
        steps.nonfinite_gradients...);
  visit(
      Field{"batch_digest", "1",
            "Digest of the step's tokens and labels: equal data, equal digest",
            Domain::Digest(), 4},
      steps.batch_digest...);
}

/// Attributes of files: absent where isoloss itself has trained the run, as of
/// each that it keeps a journal of.
template <typename Visitor, typename OriginT>
void VisitOrigin(Visitor& visitor, OriginT& origin) {
  visitor.Attribute(Field{"origin", "",
                          "Format of the log that it was read from, or who "
                          "recorded it; absent: isoloss trained the run",
                          Domain::Text()}
                        .Optional(),
                    origin.format);
  visitor.Attribute(
      Field{"loss_values", "1",
            "What a loss is: absent: of its step; 1: mean over the interval; "
            "2: mean of a chart's bucket; 3: smoothed",
            Domain::Count(0, 3)}
          .Optional(),
      origin.loss_values);
  visitor.Attribute(
      Field{"loss_thinned", "",
            "Points of the curve were left out; absent: none", Domain::Text()}
          .Optional(),
      origin.loss_thinned);
  visitor.Attribute(
      Field{"top_k", "1",
            "Experts that each token of a step has in every MoE layer; absent: "
            "nobody told, or routers see other tokens than labels count",
            Domain::Count()}
          .Optional(),
      origin.top_k);
  const auto half_unit = [&](const char* name, const char* unit,
                             const char* description, auto& value) {
    visitor.Attribute(
        Field{name, unit, description, Domain::Real(0, kMostFp32)}.Optional(),
        value);
  };
  half_unit("loss_half_unit", "nat",
            "Half a unit of the last digit of a loss; absent: all are there",
            origin.loss_half_unit);
  half_unit("lr_half_unit", "1",
            "Half a unit of the last digit of a learning rate; likewise",
            origin.lr_half_unit);
}

template <typename Visitor, typename ProvenanceT>
void VisitProvenance(Visitor& visitor, ProvenanceT& p) {
  constexpr bool kCircumstance = false;  // who, where and how, not what
  const auto text = [&visitor](const char* name, const char* description,
                               auto& value, int64_t since = 1,
                               bool reproducible = true) {
    visitor.Attribute(
        Field{name, "", description, Domain::Text(), since, reproducible},
        value);
  };
  const auto number = [&visitor](const char* name, const char* unit,
                                 const char* description, const Domain& domain,
                                 auto& value, int64_t since = 1,
                                 bool reproducible = true) {
    visitor.Attribute(
        Field{name, unit, description, domain, since, reproducible}, value);
  };
  text("tool_version", "Program and version that made the run", p.tool_version,
       1, kCircumstance);
  text("commit", "Commit of its source, `-dirty` if modified, or `unknown`",
       p.commit, 1, kCircumstance);
  text("compiler", "Compiler that built it", p.compiler, 1, kCircumstance);
  text("cpu_target", "Instruction set the kernels ran on", p.cpu_target, 1,
       kCircumstance);
  text("experiment_name", "Name of the experiment", p.experiment_name, 1,
       kCircumstance);
  text("experiment_text", "The resolved experiment without `train.seeds`, TOML",
       p.experiment_text, 1, kCircumstance);
  text("experiment_digest", "Digest of `experiment_text`", p.experiment_digest,
       1, kCircumstance);
  text("config_digest",
       "Digest of the configuration that two runs must share to be compared; "
       "neither seed nor arm is part of it",
       p.config_digest);
  text("arm", "Name of the arm", p.arm);
  text("baseline_arm", "The experiment's first arm", p.baseline_arm);
  text("recipe", "Name of the arm's precision recipe", p.recipe);
  text("resolved_recipe", "What each GEMM site got, one line per site",
       p.resolved_recipe);
  text("corpus_description", "Where the training text came from",
       p.corpus_description, 1, kCircumstance);
  text("corpus_digest", "Digest of the training text", p.corpus_digest);
  text("initial_weights_digest", "Digest of the weights before step 1",
       p.initial_weights_digest);
  text("final_weights_digest", "Digest of the weights after the last step",
       p.final_weights_digest);
  number("seed", "1", "Seed of the run", Domain::Seed(), p.seed);
  number("steps_planned", "step", "Optimizer steps the experiment asks for",
         Domain::Count(1), p.steps_planned);
  number("tokens_per_step", "token", "Tokens in each step", Domain::Count(1),
         p.tokens_per_step);
  number("parameters", "1", "Number of trained values", Domain::Count(1),
         p.parameters);
  number("workers", "thread", "Threads of the run; no result depends on it",
         Domain::Count(1), p.workers, 1, kCircumstance);
  text("transport", "How bytes travelled; no result depends on it", p.transport,
       2, kCircumstance);
  number("processes", "process",
         "Processes that shared the ranks; no result depends on it",
         Domain::Count(1), p.processes, 2, kCircumstance);
  number("ranks", "rank", "Virtual ranks", Domain::Count(1), p.ranks, 2);
  number("expert_data_parallel", "1", "Copies of each expert", Domain::Count(1),
         p.expert_data_parallel, 2);
  number("ranks_per_node", "rank", "Ranks of a modelled node", Domain::Count(1),
         p.ranks_per_node, 2);
  text("exchange", "The arm's exchange options, one line", p.exchange, 2);
  text("routing", "Who chose the experts", p.routing, 2);
  visitor.Attribute(
      Field{"perturbation", "",
            "What the initial weights were perturbed by on purpose; absent if "
            "by nothing",
            Domain::Text()}
          .Optional(),
      p.perturbation);
  text("numerics_digest",
       "Digest of a small fixed training with the arm's recipe and "
       "exchange: equal numerics, equal digest",
       p.numerics_digest, 3);
  number("quantized_gemms_per_step", "call",
         "GEMM calls with a quantised operand that the recipe asks for per "
         "step, counted alike",
         Domain::Count(), p.quantized_gemms_per_step);
  number("gemms_per_step", "call", "GEMM calls per step in all, counted alike",
         Domain::Count(), p.gemms_per_step);
  number("unigram_entropy_nats", "nat",
         "Unigram entropy of the training share; NaN if unknown",
         Domain::Real(0, 1e3).OrNan(), p.unigram_entropy_nats);
  number("entropy_floor_nats", "nat",
         "Entropy rate of a synthetic source; NaN if unknown",
         Domain::Real(0, 1e3).OrNan(), p.entropy_floor_nats);
  number("bigram_entropy_nats", "nat",
         "Entropy of a token of the training share given the one before it; "
         "NaN if unknown",
         Domain::Real(0, 1e3).OrNan(), p.bigram_entropy_nats, 6);
  number("deflated_bits", "bit",
         "Bits per token of the training share when deflate has compressed "
         "it, or its beginning; it depends on the library's version. NaN if "
         "unknown",
         Domain::Real(0, 1e3).OrNan(), p.deflated_bits, 6, kCircumstance);
  text("complete", "True if all planned steps were run", p.complete);
}

/// The index of a group that has a row for every step, or for some.
inline Field StepIndex(Relation relation) {
  return {"step", "step", "Number of the optimizer step, from 1",
          Domain::Step().With(relation)};
}

template <typename Visitor, typename MoeT>
void VisitMoe(Visitor& visitor, MoeT& moe) {
  const auto by_expert = [&](const Field& field, auto& values) {
    visitor.Array(field.Only(When::kExperts), values,
                  {{"layers", moe.layers}, {"experts", moe.experts}});
  };
  const auto by_layer = [&](const Field& field, auto& values,
                            When when = When::kExperts) {
    visitor.Array(field.Only(when), values, {{"layers", moe.layers}});
  };
  visitor.Group("moe", "Routing of each optimizer step", 2);
  visitor.Column(StepIndex(Relation::kStepRows).Only(When::kExperts), moe.step);
  by_expert(Field{"tokens_per_expert", "token", "Tokens that chose the expert",
                  Domain::Count()
                      .With(Relation::kRouted)
                      .With(Relation::kLoad)
                      .With(Relation::kDeadExperts)
                      .With(Relation::kExpertIds)
                      .With(Relation::kAssignments)
                      .With(Relation::kBusiest)},
            moe.tokens_per_expert);
  by_expert(Field{"expert_bias", "1",
                  "Bias of the expert's score after the step's update",
                  Domain::Fp32()}
                .At(Turn::kBias, Scale::kRow),
            moe.expert_bias);
  // No exchange of this program has a capacity that could drop any.
  by_layer(
      Field{"dropped_tokens", "token", "(token, slot) pairs without an expert",
            Domain::Count().With(Relation::kRouted).With(Relation::kDropped)},
      moe.dropped_tokens);
  by_layer(Field{"padding_rows", "row",
                 "Zero rows that fill up the experts' lists", Domain::Count()}
               .On(Scope::kMesh),
           moe.padding_rows);
  visitor.Array(
      Field{"expert_ids", "1", "Experts of each token in slot order",
            Domain::Count().With(Relation::kExpertIds)}
          .Only(When::kRouting)
          .On(Scope::kSlots),
      moe.expert_ids,
      {{"layers", moe.layers}, {"tokens", moe.tokens}, {"slots", moe.top_k}});
  by_layer(Field{"router_entropy", "nat",
                 "Mean over tokens of the entropy of the scores over their sum",
                 Domain::Real(0).With(Relation::kEntropy), 3},
           moe.router_entropy);
  by_layer(Field{"routing_digest", "1",
                 "Digest of who chose whom: equal routing, equal digest",
                 Domain::Digest(), 3}
               .At(Turn::kRouting),
           moe.routing_digest);
  by_layer(Field{"routing_flips", "1",
                 "Replayed (token, slot) pairs whose expert the router "
                 "would not have chosen",
                 Domain::Count().With(Relation::kFlips), 3},
           moe.routing_flips, When::kReplay);
}

/// The columns of a table of parameters, names aside: visit(field, part of each
/// of `parameters`...).
template <typename Visit, typename... Parameters>
void VisitParameterColumns(Visit&& visit, Parameters&... parameters) {
  visit(StepIndex(Relation::kStepRows), parameters.step...);
  visit(Field{"grad_norm", "1", "L2 norm of the gradient before clipping",
              Domain::Norm().With(Relation::kNorms)}
            .At(Turn::kGradients),
        parameters.grad_norm...);
  visit(Field{"update_ratio", "1",
              "L2 norm of the update over that of the weights before",
              Domain::Ratio()}
            .At(Turn::kUpdates),
        parameters.update_ratio...);
}

/// As above for a visitor of VisitRunLog; index(field, steps) takes the first.
template <typename Visitor, typename Index, typename ParametersT>
void VisitParameters(Visitor& visitor, const Index& index,
                     ParametersT& parameters) {
  VisitParameterColumns(
      [&](const Field& field, auto& values) {
        if constexpr (std::is_same_v<decltype(values),
                                     decltype((parameters.step))>) {
          index(field, values);
          visitor.Labels(Field{"names", "", "Parameters, torchtitan's names",
                               Domain::Text()},
                         parameters.names, {"parameters", parameters.count});
        } else {
          visitor.Array(field, values, {{"parameters", parameters.count}});
        }
      },
      parameters);
}

template <typename Visitor, typename TensorsT>
void VisitTensors(Visitor& visitor, TensorsT& tensors) {
  visitor.Group("tensors", "Tensors at chosen steps, in order of computation",
                3);
  visitor.Column(StepIndex(Relation::kSomeSteps).Only(When::kTensors),
                 tensors.step);
  visitor.Labels(Field{"names", "", "<module>_<tensor>", Domain::Text()},
                 tensors.names, {"tensors", tensors.count});
  visitor.Array(
      Field{"digest", "1", "Digest of the content; 0 at a step without digests",
            Domain::Whole().With(Relation::kDigests)}
          .Only(When::kDigests)
          .At(Turn::kDigest),
      tensors.digest, {{"tensors", tensors.count}});
  for (size_t i = 0; i < kTensorStatisticCount; ++i) {
    const TensorStatistic& s = kTensorStatistics[i];
    visitor.Array(Field{s.name, s.unit, s.description, s.domain}
                      .Only(When::kStatistics)
                      .At(s.turn, s.scale),
                  tensors.statistics[i], {{"tensors", tensors.count}});
  }
  visitor.Array(
      Field{"e8m0_histogram", "block", "Blocks along rows with each E8M0 byte",
            Domain::Count().With(Relation::kScales)}
          .Only(When::kStatistics),
      tensors.e8m0_histogram,
      {{"tensors", tensors.count}, {"bytes", tensors.scale_bytes}});
  visitor.Array(Field{"e8m0_histogram_columnwise", "block",
                      "Blocks down columns with each E8M0 byte",
                      Domain::Count().With(Relation::kScales)}
                    .Only(When::kStatistics),
                tensors.e8m0_histogram_columnwise,
                {{"tensors", tensors.count}, {"bytes", tensors.scale_bytes}});
}

template <typename Visitor, typename ExchangeT>
void VisitExchange(Visitor& visitor, ExchangeT& exchange) {
  const auto column = [&visitor](const char* name, const char* unit,
                                 const char* description, auto& values,
                                 Relation relation) {
    visitor.Column(
        Field{name, unit, description, Domain::Count().With(relation)}
            .Only(When::kTransport)
            .On(Scope::kMesh),
        values);
  };
  const auto by_rank = [&](const Field& field, auto& values,
                           When when = When::kTransport) {
    visitor.Array(field.Only(when).On(Scope::kMesh), values,
                  {{"ranks", exchange.ranks}});
  };
  const auto by_layer = [&](const char* name, const char* unit,
                            const char* description, const Domain& domain,
                            auto& values) {
    visitor.Array(Field{name, unit, description, domain}
                      .Only(When::kTransport)
                      .On(Scope::kMesh),
                  values, {{"layers", exchange.layers}});
  };
  const Domain bytes =
      Domain::Count().With(Relation::kBytes).With(Relation::kPairs);
  const Domain rows = Domain::Count().With(Relation::kRowOrder);
  const Domain busiest = Domain::Count().With(Relation::kBusiest);
  visitor.Group("exchange",
                "What each optimizer step moved between ranks, payload bytes "
                "without headers",
                2);
  visitor.Column(StepIndex(Relation::kStepRows).Only(When::kTransport),
                 exchange.step);
  by_rank(
      Field{"bytes_sent", "byte", "Bytes the rank sent, to itself too", bytes},
      exchange.bytes_sent);
  by_rank(Field{"bytes_received", "byte", "Bytes the rank received", bytes},
          exchange.bytes_received);
  column("bytes_to_self", "byte", "Bytes of ranks to themselves",
         exchange.bytes_to_self, Relation::kBytes);
  column("bytes_within_nodes", "byte", "Bytes between two ranks of one node",
         exchange.bytes_within_nodes, Relation::kBytes);
  column("bytes_between_nodes", "byte", "Bytes between ranks of two nodes",
         exchange.bytes_between_nodes, Relation::kBytes);
  visitor.Column(
      Field{"messages", "message", "Messages received", Domain::Count()}
          .Only(When::kTransport)
          .On(Scope::kMesh),
      exchange.messages);
  by_layer("assignments", "row", "(token, slot) pairs with an expert",
           rows.With(Relation::kAssignments), exchange.assignments);
  by_layer("dispatch_rows", "row", "Rows that travelled to experts' ranks",
           rows, exchange.dispatch_rows);
  by_layer("rank_rows", "row", "Distinct (token, rank) pairs", rows,
           exchange.rank_rows);
  by_layer("node_rows", "row", "Distinct (token, node) pairs", rows,
           exchange.node_rows);
  by_layer("max_rows_per_rank", "row", "Rows of the busiest rank's experts",
           busiest, exchange.max_rows_per_rank);
  by_layer("max_rows_per_expert", "row", "Rows of the busiest expert", busiest,
           exchange.max_rows_per_expert);
  by_layer("empty_experts", "expert", "Experts without a row", busiest,
           exchange.empty_experts);
  by_rank(Field{"wait_seconds", "s", "Time that receivers waited for the rank",
                Domain::Seconds(), 1, false},
          exchange.wait_seconds);

  visitor.Group("exchange_pairs", "What all steps moved between each two ranks",
                2);
  visitor.Count(Field{"rank", "rank", "Sending rank, from 0", Domain::Count()},
                exchange.ranks);
  by_rank(Field{"bytes_by_pair", "byte", "Bytes to each receiving rank",
                Domain::Count().With(Relation::kPairs)},
          exchange.bytes_by_pair, When::kPairs);
}

/// The groups of the steps and of what happened, without attributes; visitors
/// as for VisitRunLog.
template <typename Visitor, typename RunLogT>
void VisitGroups(Visitor& visitor, RunLogT& log) {
  const auto column = [&visitor](const Field& field, auto& values) {
    visitor.Column(field, values);
  };
  visitor.Group("steps", "One row per optimizer step", 1);
  VisitSteps(column, log.steps);

  visitor.Group("eval", "Held-out evaluation on fixed batches", 1);
  column(
      Field{"step", "step", "Updates made before it; 0: before the first one",
            Domain::Step(0).With(Relation::kEvaluations)},
      log.eval.step);
  column(Field{"loss_nats", "nat", "Mean over sequences of equal length",
               Domain::Positive(kMostFp32).With(Relation::kEvaluationMean)}
             .At(Turn::kLoss)
             .Shown("held-out loss_nats"),
         log.eval.loss_nats);
  visitor.Array(
      Field{"per_sequence_loss_nats", "nat",
            "Mean loss of each held-out sequence",
            Domain::Positive(kMostFp32).With(Relation::kEvaluationMean)}
          .Shown("loss_nats"),
      log.eval.per_sequence_loss_nats, {{"sequences", log.eval.sequences}});

  visitor.Group("parameters", "Each parameter in each optimizer step", 3);
  VisitParameters(visitor, column, log.parameters);
  VisitTensors(visitor, log.tensors);
  VisitMoe(visitor, log.moe);
  VisitExchange(visitor, log.exchange);

  visitor.Group("events", "What happened, and when", 1);
  const auto member = [&](const Field& field, auto pointer) {
    visitor.Member(field, log.events, pointer);
  };
  // Until the year 10000.
  member(Field{"unix_seconds", "s", "Time since 1970-01-01 00:00 UTC",
               Domain::Real(0, 253402300799).Accusing(Fault::kFile)},
         &Event::unix_seconds);
  member(Field{"kind", "",
               "`start`, `resume`, `mesh`, `checkpoint`, `damage`, `cost`, "
               "`abort`, `interrupt` or `finish`",
               Domain::Text()},
         &Event::kind);
  member(Field{"text", "", "What happened, in words", Domain::Text()},
         &Event::text);
}

/// Walks the whole layout in its order on disk. A visitor has
///   Version(field, expected)      an int64 attribute with a fixed value
///   Attribute(field, value)       int64, double, bool or string
///   Group(name, description, since)  the columns that follow are its datasets
///   Column(field, values)         the first one of a group is its index;
///                                 others are as long as the index or absent
///   Array(field, values, axes)    [rows of the index, axes...], row-major, or
///                                 absent; an axis is as long in all arrays
///   RequiredColumn(field, values) as long as the group's index, even if empty;
///                                 of the run, not of its steps
///   Labels(field, names, axis)    [axis]: what the places of an axis stand
///                                 for; required if the group has rows
///   Count(field, rows)            an index 0, 1, ..., rows - 1
///   Member(field, rows, member)   the column of one member of each of `rows`;
///                                 all columns of the group are required
template <typename Visitor, typename RunLogT>
void VisitRunLog(Visitor& visitor, RunLogT& log) {
  visitor.Version(
      Field{"schema_version", "1", "Version of this layout", Domain::Count(1)},
      kSchemaVersion);
  VisitProvenance(visitor, log.provenance);
  VisitOrigin(visitor, log.provenance.origin);
  VisitGraph(visitor, log.provenance.graph);
  VisitGroups(visitor, log);
}

}  // namespace isoloss::runlog
