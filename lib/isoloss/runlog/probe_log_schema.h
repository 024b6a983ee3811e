// Describes the schema of a probe log, parts of which an ensemble shares.
#pragma once

#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

template <>
const Schema& SchemaOf<ProbeLog>();

Columns ListOf(const OracleColumns& part);
Columns ListOf(const OracleRoutingColumns& part);
Columns ListOf(const PrecisionColumns& part);
Columns ListOf(const RoutingFlipColumns& part);
Columns ListOf(const PlainStepColumns& part);

/// Returns the groups of a ProbeLog that compare two arms.
std::span<const Group> ComparisonGroups();
/// /plain_steps of another program's operations holds the values that were
/// recorded, or NaN.
const Group& ForeignStepGroup();

}  // namespace isoloss::runlog
