#include "isoloss/expert_parallel/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel::topology_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// "" if the topology is valid.
std::string Complaint(const Topology& topology) {
  try {
    Validate(topology, "mesh:");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), StartsWith("mesh: "));
    return error.what();
  }
  return "";
}

TEST(Topology, OneRankHoldsEverything) {
  const Topology one{.experts = 6};

  EXPECT_EQ(Complaint(one), "");
  EXPECT_EQ(one.experts_per_rank(), 6u);
  EXPECT_EQ(one.nodes(), 1u);
  EXPECT_EQ(one.node_ranks(), 1u);
  EXPECT_EQ(one.RankOfToken(99, 100), 0u);
}

TEST(Topology, GroupsHoldEveryExpertOnceOnConsecutiveRanks) {
  // Two groups of 4 ranks, 2 nodes each, 3 experts per rank.
  const Topology mesh{
      .experts = 12, .ranks = 8, .replicas = 2, .ranks_per_node = 2};
  ASSERT_EQ(Complaint(mesh), "");

  EXPECT_EQ(mesh.group_ranks(), 4u);
  EXPECT_EQ(mesh.experts_per_rank(), 3u);
  EXPECT_EQ(mesh.nodes(), 4u);
  EXPECT_EQ(mesh.OwnerOf(0, 3), 0u);
  EXPECT_EQ(mesh.OwnerOf(11, 0), 3u);
  EXPECT_EQ(mesh.OwnerOf(3, 4), 5u);
  EXPECT_EQ(mesh.OwnerOf(11, 7), 7u);
  EXPECT_EQ(mesh.FirstExpertOf(5), 3u);
  EXPECT_EQ(mesh.NodeOf(5), 2u);
  EXPECT_EQ(mesh.GatewayOf(0, 1), 2u);
  EXPECT_EQ(mesh.GatewayOf(1, 1), 3u);
  for (size_t source = 0; source < mesh.ranks; ++source) {
    for (size_t expert = 0; expert < mesh.experts; ++expert) {
      const size_t owner = mesh.OwnerOf(expert, source);
      EXPECT_EQ(mesh.GroupOf(owner), mesh.GroupOf(source));
      EXPECT_GE(expert, mesh.FirstExpertOf(owner));
      EXPECT_LT(expert, mesh.FirstExpertOf(owner) + mesh.experts_per_rank());
    }
  }
}

TEST(Topology, ANodeIsAtMostAGroup) {
  const Topology mesh{
      .experts = 8, .ranks = 8, .replicas = 4, .ranks_per_node = 8};

  EXPECT_EQ(Complaint(mesh), "");
  EXPECT_EQ(mesh.node_ranks(), 2u);
  EXPECT_EQ(mesh.nodes(), 4u);
}

TEST(Topology, TokensAreSharedOutInRunsAndFoundAgain) {
  for (const size_t ranks : {1, 2, 3, 7, 8, 64}) {
    const Topology mesh{.experts = ranks, .ranks = ranks};
    for (const size_t tokens : {1, 2, 5, 7, 8, 63, 64, 65, 200}) {
      EXPECT_EQ(mesh.TokenBegin(0, tokens), 0u);
      EXPECT_EQ(mesh.TokenBegin(ranks, tokens), tokens);
      for (size_t token = 0; token < tokens; ++token) {
        const size_t rank = mesh.RankOfToken(token, tokens);

        ASSERT_LT(rank, ranks);
        EXPECT_GE(token, mesh.TokenBegin(rank, tokens));
        EXPECT_LT(token, mesh.TokenBegin(rank + 1, tokens));
      }
    }
  }
}

TEST(Topology, RefusesWhatDoesNotDivide) {
  EXPECT_THAT(Complaint({.experts = 8, .ranks = 8, .replicas = 3}),
              HasSubstr("ranks is 8 and replicas is 3"));
  EXPECT_THAT(Complaint({.experts = 6, .ranks = 8, .replicas = 2}),
              HasSubstr("experts is 6 and the expert-parallel degree (ranks / "
                        "replicas) is 4"));
  EXPECT_THAT(Complaint({.experts = 4, .ranks = 8}), HasSubstr("degree"));
  EXPECT_THAT(Complaint({.experts = 12, .ranks = 12, .ranks_per_node = 8}),
              HasSubstr("ranks_per_node is 8"));
  EXPECT_EQ(Complaint({.experts = 12, .ranks = 12, .ranks_per_node = 6}), "");
  EXPECT_EQ(Complaint({.experts = 12, .ranks = 12, .ranks_per_node = 13}), "");
}

TEST(Topology, RefusesZeros) {
  EXPECT_THAT(Complaint({.experts = 0}), HasSubstr("experts is 0"));
  EXPECT_THAT(Complaint({.ranks = 0}), HasSubstr("ranks is 0"));
  EXPECT_THAT(Complaint({.replicas = 0}), HasSubstr("replicas is 0"));
  EXPECT_THAT(Complaint({.ranks_per_node = 0}),
              HasSubstr("ranks_per_node is 0"));
}

}  // namespace
}  // namespace isoloss::expert_parallel::topology_test
