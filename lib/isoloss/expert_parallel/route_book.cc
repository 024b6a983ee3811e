#include "isoloss/expert_parallel/route_book.h"

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel {

using transport::OpKind;

RouteBook::RouteBook(const ExchangeSetup& setup, int layer)
    : topology_(setup.topology),
      options_(setup.options),
      transport_(setup.transport),
      share_(setup.share),
      layer_(layer),
      local_(setup.transport.local_ranks()),
      payload_(PayloadByName(setup.options.payload, setup.rounding)),
      gradient_payload_(
          PayloadByName(setup.options.gradient_payload, setup.rounding)),
      reply_payload_(PayloadByName("unquantized", setup.rounding)),
      layout_(setup.topology, setup.dispatch_units, setup.options.padding,
              local_),
      ports_(static_cast<size_t>(local_.size())) {}

FoldOrder RouteBook::fold_order() const {
  switch (options_.algorithm) {
    case Algorithm::kFlat:
      return FoldOrder::kSlot;
    case Algorithm::kTitanBf16:
      return FoldOrder::kExpert;
    case Algorithm::kRank:
    case Algorithm::kNode:
      break;
  }
  return options_.order == CombineOrder::kRank ? FoldOrder::kRank
                                               : FoldOrder::kLastSlot;
}

size_t RouteBook::FirstToken(int rank) const {
  return layout_.TokenBegin(static_cast<size_t>(rank), layout_.tokens()) -
         first_token_;
}

size_t RouteBook::TokenCount(int rank) const {
  return FirstToken(rank + 1) - FirstToken(rank);
}

const Payload& RouteBook::PayloadOf(OpKind kind) const {
  return kind == OpKind::kDispatch           ? payload_
         : kind == OpKind::kDispatchGradient ? gradient_payload_
                                             : reply_payload_;
}

transport::MessageSize RouteBook::MessageOf(OpKind kind, size_t hop,
                                            size_t from, size_t to,
                                            size_t width) const {
  const bool back =
      kind == OpKind::kCombine || kind == OpKind::kCombineGradient;
  const Extent extent =
      back ? ExtentOf(hop, to, from) : ExtentOf(hop, from, to);
  if (extent.rows == 0) return {};
  return {extent.rows, extent.tags * TagBytes(kind) +
                           extent.rows * PayloadOf(kind).row_bytes(width)};
}

RouteBook::Extent RouteBook::ExtentOf(size_t hop, size_t from,
                                      size_t to) const {
  const Topology& mesh = topology_;
  if (mesh.replicas > 1 && mesh.GroupOf(from) != mesh.GroupOf(to)) return {};
  if (options_.algorithm == Algorithm::kRank) {
    return {layout_.RankRows(from, to), layout_.Assignments(from, to)};
  }
  if (options_.algorithm != Algorithm::kNode) {
    const size_t rows = layout_.Assignments(from, to);
    return {rows, rows};
  }
  if (hop == 0) {
    const size_t node = mesh.NodeOf(to);
    if (mesh.GatewayOf(from, node) != to) return {};
    return {layout_.NodeRows(from, node), layout_.NodeAssignments(from, node)};
  }
  if (mesh.NodeOf(from) != mesh.NodeOf(to)) return {};
  // A gateway forwards the rows that came from the rank at its place on every
  // node of the group.
  Extent sum;
  const size_t first = mesh.GroupOf(from) * mesh.group_ranks();
  for (size_t source = first + from % mesh.node_ranks();
       source < first + mesh.group_ranks(); source += mesh.node_ranks()) {
    sum.rows += layout_.RankRows(source, to);
    sum.tags += layout_.Assignments(source, to);
  }
  return sum;
}

void RouteBook::Count(MatrixView<const int32_t> expert_ids,
                      MatrixView<const float> weights) {
  expert_ids_ = expert_ids;
  weights_ = weights;
  const BatchShare share = share_ != nullptr ? *share_ : BatchShare();
  // Every process has an equal part of the batch, and shares are equal.
  const size_t tokens = expert_ids.rows() * share.count *
                        static_cast<size_t>(transport_.processes());
  layout_.BeginShare(share);
  first_token_ = layout_.TokenBegin(static_cast<size_t>(local_.first), tokens);
  ISOLOSS_ASSERT(layout_.TokenBegin(static_cast<size_t>(local_.end), tokens) -
                     first_token_ ==
                 expert_ids.rows());
  const auto count = [&](int rank, std::span<std::byte> mine) {
    const auto r = static_cast<size_t>(rank);
    const size_t begin = layout_.TokenBegin(r, tokens);
    const size_t end = layout_.TokenBegin(r + 1, tokens);
    layout_.Count(r, tokens, expert_ids.Rows(begin - first_token_, end - begin),
                  mine);
  };
  const transport::Operation operation = {OpKind::kCounts, layer_};
  const std::span<const std::byte> counts =
      transport_.AllGather(operation, layout_.contribution_bytes(), count);
  try {
    layout_.Build(counts, tokens, expert_ids.cols());
  } catch (const Error& error) {
    ThrowError(error.kind(), "step {}, {}: {}", transport_.step(),
               transport::Describe(operation), error.what());
  }
  counts_ = layout_.counts();
  counts_.dispatch_rows =
      options_.algorithm == Algorithm::kRank   ? counts_.rank_rows
      : options_.algorithm == Algorithm::kNode ? counts_.node_rows
                                               : counts_.assignments;
}

Assignment RouteBook::TokenAssignment(int rank, size_t i) const {
  const size_t t = FirstToken(rank) + i / slots();
  const size_t k = i % slots();
  return {.token = static_cast<uint32_t>(first_token_ + t),
          .slot = static_cast<uint16_t>(k),
          .expert = static_cast<uint16_t>(expert_ids_(t, k)),
          .row = 0,
          .weight = weights_.empty() ? 0.0f : weights_(t, k)};
}

Assignment RouteBook::SentAssignment(int rank, size_t hop, size_t tag) const {
  const Port& port = At(rank, hop);
  const size_t i = port.send.AssignmentOfTag(tag);
  Assignment sent =
      hop == 0 ? TokenAssignment(rank, i) : At(rank, 0).receive.tags[i];
  sent.row = port.send.RowOfTag(tag);
  return sent;
}

/// Builds what the rank sends of its own tokens.
void RouteBook::BuildTokens(int rank) {
  static thread_local std::vector<Assignment> assignments;
  static thread_local std::vector<uint32_t> destinations;
  static thread_local std::vector<uint32_t> begins;
  const Topology& mesh = topology_;
  const auto source = static_cast<size_t>(rank);
  const size_t count = TokenCount(rank);
  assignments.clear();
  destinations.clear();
  begins.assign(1, 0);
  for (size_t i = 0; i < count * slots(); ++i) {
    const Assignment& tag = assignments.emplace_back(TokenAssignment(rank, i));
    const size_t owner = mesh.OwnerOf(tag.expert, source);
    destinations.push_back(static_cast<uint32_t>(
        hops() == 1 ? owner : mesh.GatewayOf(source, mesh.NodeOf(owner))));
    if ((i + 1) % slots() == 0) begins.push_back(static_cast<uint32_t>(i + 1));
  }
  At(rank, 0).send.Build(begins, assignments, destinations, fold_order(),
                         mesh.ranks);
}

size_t RouteBook::CheckAssignment(int rank, size_t hop, size_t peer,
                                  const Assignment& tag) const {
  const Topology& mesh = topology_;
  const size_t tokens = layout_.tokens();
  const auto self = static_cast<size_t>(rank);
  if (tag.token < tokens && tag.expert < mesh.experts) {
    // A gateway may forward rows of any rank at the same place in its node.
    const size_t source = hop == 0 ? peer : layout_.SourceOf(tag.token);
    const size_t owner = mesh.OwnerOf(tag.expert, source);
    const bool arrived =
        hop == last_hop() ? owner == self
                          : mesh.GatewayOf(source, mesh.NodeOf(owner)) == self;
    if (arrived && tag.token >= mesh.TokenBegin(source, tokens) &&
        tag.token < mesh.TokenBegin(source + 1, tokens)) {
      return source;
    }
  }
  ThrowError(ErrorKind::kTransport,
             "step {}, dispatch, MoE layer {}, hop {}: rank {} received from "
             "rank {} token {} for expert {}, but that rank does not own the "
             "token or this one does not lead to the expert. The row was sent "
             "astray.",
             transport_.step(), layer_, hop, rank, peer, tag.token, tag.expert);
}

/// Builds what a gateway forwards to the ranks of its node.
void RouteBook::BuildForwarding(int rank) {
  static thread_local std::vector<uint32_t> destinations;
  const ReceiveSide& received = At(rank, 0).receive;
  destinations.clear();
  for (const Assignment& tag : received.tags) {
    destinations.push_back(static_cast<uint32_t>(
        topology_.OwnerOf(tag.expert, layout_.SourceOf(tag.token))));
  }
  At(rank, 1).send.Build(received.tag_of_row, received.tags, destinations,
                         fold_order(), topology_.ranks);
}

Assignment RouteBook::ReplyName(uint32_t token, uint16_t slot) const {
  return {.token = token,
          .slot = SharesRows(fold_order()) ? uint16_t{0} : slot,
          .expert = 0,
          .row = 0,
          .weight = 0};
}

RouteBook::Reply RouteBook::ReplyTo(int rank, size_t hop, size_t row) const {
  const SendSide& send = At(rank, hop).send;
  if (hop > 0) {
    const ReceiveSide& items = At(rank, 0).receive;
    const uint32_t token =
        items.tags[items.tag_of_row[send.ItemOfRow(row)]].token;
    return {ReplyName(token, 0), layout_.SourceOf(token)};
  }
  const auto token = static_cast<uint32_t>(first_token_ + FirstToken(rank) +
                                           send.ItemOfRow(row));
  // If there is one row per assignment, rows and assignments share their
  // numbers.
  const size_t slot =
      SharesRows(fold_order()) ? 0 : send.AssignmentOfTag(row) % slots();
  return {ReplyName(token, static_cast<uint16_t>(slot)),
          static_cast<size_t>(rank)};
}

}  // namespace isoloss::expert_parallel
