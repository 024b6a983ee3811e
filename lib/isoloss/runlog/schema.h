// Every group, dataset and attribute of a run log: its name, unit, meaning and
// place in memory, listed once. Writer, reader and docs/run-log.md follow it.
#pragma once

#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// What a dataset or attribute is called, counted in and stands for.
struct Field {
  const char* name;
  const char* unit;
  const char* description;
  int64_t since = 1;  ///< version of the layout that brought it
  /// A clock or an accident: equal runs need not have equal values.
  bool reproducible = true;
};

/// An extent of an array besides its rows, and its place in memory.
template <typename Size>
struct Axis {
  const char* name;
  Size& size;
};

/// Calls visit(field, part of each of `steps`...) for every step column.
/// `steps` are StepColumns, StepRows or both.
template <typename Visit, typename... Steps>
void VisitSteps(Visit&& visit, Steps&... steps) {
  visit(Field{"step", "step", "Number of the optimizer step, from 1"},
        steps.step...);
  visit(Field{"tokens_seen", "token", "Tokens trained on after this step"},
        steps.tokens_seen...);
  visit(Field{"loss_nats", "nat",
              "Mean training loss over the step's labels, before its update"},
        steps.loss_nats...);
  visit(
      Field{"grad_norm", "1", "Global L2 norm of the gradient before clipping"},
      steps.grad_norm...);
  visit(Field{"lr", "1", "Learning rate of the update"}, steps.lr...);
  visit(Field{"step_seconds", "s", "Wall-clock time of the step", 1, false},
        steps.step_seconds...);
  visit(Field{"tokens_per_second", "token/s",
              "Tokens of the step over its time", 1, false},
        steps.tokens_per_second...);
  visit(Field{"expert_load_max_over_mean", "1",
              "Busiest expert's tokens over the mean, in the worst MoE layer"},
        steps.expert_load_max_over_mean...);
  visit(Field{"dead_experts", "expert",
              "Experts without a token, summed over MoE layers"},
        steps.dead_experts...);
  visit(Field{"quantized_gemms", "call",
              "GEMM calls with a quantised operand that were executed; what "
              "processes repeat counts once"},
        steps.quantized_gemms...);
  visit(
      Field{"nonfinite_gradients", "1",
            "Gradient elements that are NaN or infinite, of all parameters", 3},
      steps.nonfinite_gradients...);
  visit(
      Field{"batch_digest", "1",
            "Digest of the step's tokens and labels: equal data, equal digest",
            4},
      steps.batch_digest...);
}

template <typename Visitor, typename ProvenanceT>
void VisitProvenance(Visitor& visitor, ProvenanceT& p) {
  const auto visit = [&visitor](const char* name, const char* unit,
                                const char* description, auto& value) {
    visitor.Attribute(Field{name, unit, description}, value);
  };
  visit("tool_version", "", "Program and version that made the run",
        p.tool_version);
  visit("commit", "",
        "Commit of its source, `-dirty` if modified, or `unknown`", p.commit);
  visit("compiler", "", "Compiler that built it", p.compiler);
  visit("cpu_target", "", "Instruction set the kernels ran on", p.cpu_target);
  visit("experiment_name", "", "Name of the experiment", p.experiment_name);
  visit("experiment_text", "", "The resolved experiment, TOML",
        p.experiment_text);
  visit("experiment_digest", "", "Digest of `experiment_text`",
        p.experiment_digest);
  visit(
      "config_digest", "",
      "Digest of all that must agree between two arms but the declared change",
      p.config_digest);
  visit("arm", "", "Name of the arm", p.arm);
  visit("baseline_arm", "", "The experiment's first arm", p.baseline_arm);
  visit("recipe", "", "Name of the arm's precision recipe", p.recipe);
  visit("resolved_recipe", "", "What each GEMM site got, one line per site",
        p.resolved_recipe);
  visit("corpus_description", "", "Where the training text came from",
        p.corpus_description);
  visit("corpus_digest", "", "Digest of the training text", p.corpus_digest);
  visit("initial_weights_digest", "", "Digest of the weights before step 1",
        p.initial_weights_digest);
  visit("final_weights_digest", "", "Digest of the weights after the last step",
        p.final_weights_digest);
  visit("seed", "1", "Seed of the run", p.seed);
  visit("steps_planned", "step", "Optimizer steps the experiment asks for",
        p.steps_planned);
  visit("tokens_per_step", "token", "Tokens in each step", p.tokens_per_step);
  visit("parameters", "1", "Number of trained values", p.parameters);
  visit("workers", "thread", "Threads of the run; no result depends on it",
        p.workers);
  const auto visit2 = [&visitor](const char* name, const char* unit,
                                 const char* description, auto& value) {
    visitor.Attribute(Field{name, unit, description, 2}, value);
  };
  visit2("transport", "", "How bytes travelled; no result depends on it",
         p.transport);
  visit2("processes", "process",
         "Processes that shared the ranks; no result depends on it",
         p.processes);
  visit2("ranks", "rank", "Virtual ranks", p.ranks);
  visit2("expert_data_parallel", "1", "Copies of each expert",
         p.expert_data_parallel);
  visit2("ranks_per_node", "rank", "Ranks of a modelled node",
         p.ranks_per_node);
  visit2("exchange", "", "The arm's exchange options, one line", p.exchange);
  visit2("routing", "", "Who chose the experts", p.routing);
  visitor.Attribute(
      Field{"numerics_digest", "",
            "Digest of a small fixed training with the arm's recipe and "
            "exchange: equal numerics, equal digest",
            3},
      p.numerics_digest);
  visit("quantized_gemms_per_step", "call",
        "GEMM calls with a quantised operand that the recipe asks for per "
        "step, counted alike",
        p.quantized_gemms_per_step);
  visit("gemms_per_step", "call", "GEMM calls per step in all, counted alike",
        p.gemms_per_step);
  visit("unigram_entropy_nats", "nat",
        "Unigram entropy of the training share; NaN if unknown",
        p.unigram_entropy_nats);
  visit("entropy_floor_nats", "nat",
        "Entropy rate of a synthetic source; NaN if unknown",
        p.entropy_floor_nats);
  visit("complete", "", "True if all planned steps were run", p.complete);
}

template <typename Visitor, typename MoeT>
void VisitMoe(Visitor& visitor, MoeT& moe) {
  visitor.Group("moe", "Routing of each optimizer step", 2);
  visitor.Column(Field{"step", "step", "Number of the optimizer step, from 1"},
                 moe.step);
  visitor.Array(
      Field{"tokens_per_expert", "token", "Tokens that chose the expert"},
      moe.tokens_per_expert,
      {{"layers", moe.layers}, {"experts", moe.experts}});
  visitor.Array(Field{"expert_bias", "1",
                      "Bias of the expert's score after the step's update"},
                moe.expert_bias,
                {{"layers", moe.layers}, {"experts", moe.experts}});
  visitor.Array(
      Field{"dropped_tokens", "token", "(token, slot) pairs without an expert"},
      moe.dropped_tokens, {{"layers", moe.layers}});
  visitor.Array(
      Field{"padding_rows", "row", "Zero rows that fill up the experts' lists"},
      moe.padding_rows, {{"layers", moe.layers}});
  visitor.Array(
      Field{"expert_ids", "1",
            "Experts of each token in slot order; only with `log.routing`"},
      moe.expert_ids,
      {{"layers", moe.layers}, {"tokens", moe.tokens}, {"slots", moe.top_k}});
  visitor.Array(
      Field{"router_entropy", "nat",
            "Mean over tokens of the entropy of the scores over their sum", 3},
      moe.router_entropy, {{"layers", moe.layers}});
  visitor.Array(
      Field{"routing_digest", "1",
            "Digest of who chose whom: equal routing, equal digest", 3},
      moe.routing_digest, {{"layers", moe.layers}});
  visitor.Array(Field{"routing_flips", "1",
                      "Replayed (token, slot) pairs whose expert the router "
                      "would not have chosen",
                      3},
                moe.routing_flips, {{"layers", moe.layers}});
}

template <typename Visitor, typename ParametersT>
void VisitParameters(Visitor& visitor, ParametersT& parameters) {
  visitor.Group("parameters", "Each parameter in each optimizer step", 3);
  visitor.Column(Field{"step", "step", "Number of the optimizer step, from 1"},
                 parameters.step);
  visitor.Labels(Field{"names", "", "Parameters, torchtitan's names"},
                 parameters.names, {"parameters", parameters.count});
  visitor.Array(
      Field{"grad_norm", "1", "L2 norm of the gradient before clipping"},
      parameters.grad_norm, {{"parameters", parameters.count}});
  visitor.Array(Field{"update_ratio", "1",
                      "L2 norm of the update over that of the weights before"},
                parameters.update_ratio, {{"parameters", parameters.count}});
}

template <typename Visitor, typename TensorsT>
void VisitTensors(Visitor& visitor, TensorsT& tensors) {
  visitor.Group("tensors", "Tensors at chosen steps, in order of computation",
                3);
  visitor.Column(Field{"step", "step", "Number of the optimizer step, from 1"},
                 tensors.step);
  visitor.Labels(Field{"names", "", "<module>_<tensor>"}, tensors.names,
                 {"tensors", tensors.count});
  visitor.Array(Field{"digest", "1",
                      "Digest of the content; 0 for a tensor that had none"},
                tensors.digest, {{"tensors", tensors.count}});
  for (size_t i = 0; i < kTensorStatisticCount; ++i) {
    const TensorStatistic& s = kTensorStatistics[i];
    visitor.Array(Field{s.name, s.unit, s.description}, tensors.statistics[i],
                  {{"tensors", tensors.count}});
  }
  visitor.Array(
      Field{"e8m0_histogram", "block", "Blocks along rows with each E8M0 byte"},
      tensors.e8m0_histogram,
      {{"tensors", tensors.count}, {"bytes", tensors.scale_bytes}});
  visitor.Array(Field{"e8m0_histogram_columnwise", "block",
                      "Blocks down columns with each E8M0 byte"},
                tensors.e8m0_histogram_columnwise,
                {{"tensors", tensors.count}, {"bytes", tensors.scale_bytes}});
}

template <typename Visitor, typename ExchangeT>
void VisitExchange(Visitor& visitor, ExchangeT& exchange) {
  const auto column = [&visitor](const char* name, const char* unit,
                                 const char* description, auto& values,
                                 bool reproducible = true) {
    visitor.Column(Field{name, unit, description, 1, reproducible}, values);
  };
  const auto by_rank = [&](const char* name, const char* unit,
                           const char* description, auto& values,
                           bool reproducible = true) {
    visitor.Array(Field{name, unit, description, 1, reproducible}, values,
                  {{"ranks", exchange.ranks}});
  };
  const auto by_layer = [&](const char* name, const char* unit,
                            const char* description, auto& values) {
    visitor.Array(Field{name, unit, description}, values,
                  {{"layers", exchange.layers}});
  };
  visitor.Group("exchange",
                "What each optimizer step moved between ranks, payload bytes "
                "without headers",
                2);
  column("step", "step", "Number of the optimizer step, from 1", exchange.step);
  by_rank("bytes_sent", "byte", "Bytes the rank sent, to itself too",
          exchange.bytes_sent);
  by_rank("bytes_received", "byte", "Bytes the rank received",
          exchange.bytes_received);
  column("bytes_to_self", "byte", "Bytes of ranks to themselves",
         exchange.bytes_to_self);
  column("bytes_within_nodes", "byte", "Bytes between two ranks of one node",
         exchange.bytes_within_nodes);
  column("bytes_between_nodes", "byte", "Bytes between ranks of two nodes",
         exchange.bytes_between_nodes);
  column("messages", "message", "Messages received", exchange.messages);
  column("crc_failures", "message", "Messages whose first copy was damaged",
         exchange.crc_failures, false);
  column("resends", "message", "Of those, repaired by a second copy",
         exchange.resends, false);
  by_layer("assignments", "row", "(token, slot) pairs with an expert",
           exchange.assignments);
  by_layer("dispatch_rows", "row", "Rows that travelled to experts' ranks",
           exchange.dispatch_rows);
  by_layer("rank_rows", "row", "Distinct (token, rank) pairs",
           exchange.rank_rows);
  by_layer("node_rows", "row", "Distinct (token, node) pairs",
           exchange.node_rows);
  by_layer("max_rows_per_rank", "row", "Rows of the busiest rank's experts",
           exchange.max_rows_per_rank);
  by_layer("max_rows_per_expert", "row", "Rows of the busiest expert",
           exchange.max_rows_per_expert);
  by_layer("empty_experts", "expert", "Experts without a row",
           exchange.empty_experts);
  by_rank("wait_seconds", "s", "Time that receivers waited for the rank",
          exchange.wait_seconds, false);

  visitor.Group("exchange_pairs", "What all steps moved between each two ranks",
                2);
  visitor.Count(Field{"rank", "rank", "Sending rank, from 0"}, exchange.ranks);
  by_rank("bytes_by_pair", "byte", "Bytes to each receiving rank",
          exchange.bytes_by_pair);
}

/// Walks the whole layout in its order on disk. A visitor has
///   Version(field, expected)      an int64 attribute with a fixed value
///   Attribute(field, value)       int64, double, bool or string
///   Group(name, description, since)  the columns that follow are its datasets
///   Column(field, values)         the first one of a group is its index;
///                                 others are as long as the index or absent
///   Array(field, values, axes)    [rows of the index, axes...], row-major, or
///                                 absent; an axis is as long in all arrays
///   Labels(field, names, axis)    [axis]: what the places of an axis stand
///                                 for; required if the group has rows
///   Count(field, rows)            an index 0, 1, ..., rows - 1
///   Member(field, rows, member)   the column of one member of each of `rows`;
///                                 all columns of the group are required
template <typename Visitor, typename RunLogT>
void VisitRunLog(Visitor& visitor, RunLogT& log) {
  visitor.Version(Field{"schema_version", "1", "Version of this layout"},
                  kSchemaVersion);
  VisitProvenance(visitor, log.provenance);

  const auto column = [&visitor](const Field& field, auto& values) {
    visitor.Column(field, values);
  };
  visitor.Group("steps", "One row per optimizer step", 1);
  VisitSteps(column, log.steps);

  visitor.Group("eval", "Held-out evaluation on fixed batches", 1);
  column(
      Field{"step", "step", "Updates made before it; 0: before the first one"},
      log.eval.step);
  column(Field{"loss_nats", "nat", "Mean over sequences of equal length"},
         log.eval.loss_nats);
  visitor.Array(Field{"per_sequence_loss_nats", "nat",
                      "Mean loss of each held-out sequence"},
                log.eval.per_sequence_loss_nats,
                {{"sequences", log.eval.sequences}});

  VisitParameters(visitor, log.parameters);
  VisitTensors(visitor, log.tensors);
  VisitMoe(visitor, log.moe);
  VisitExchange(visitor, log.exchange);

  visitor.Group("events", "What happened, and when", 1);
  const auto member = [&](const Field& field, auto pointer) {
    visitor.Member(field, log.events, pointer);
  };
  member(Field{"unix_seconds", "s", "Time since 1970-01-01 00:00 UTC"},
         &Event::unix_seconds);
  member(Field{"kind", "",
               "`start`, `resume`, `mesh`, `checkpoint`, `damage`, `cost`, "
               "`abort`, `interrupt` or `finish`"},
         &Event::kind);
  member(Field{"text", "", "What happened, in words"}, &Event::text);
}

/// The layout as Markdown tables, as docs/run-log.md shows it.
std::string SchemaMarkdown();

}  // namespace isoloss::runlog
