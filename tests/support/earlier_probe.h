// A probe log as an earlier program wrote it.
#pragma once

#include "isoloss/runlog/probe_log_schema.h"

namespace isoloss::test_support {

/// Takes from `log` what layout 2 brought.
inline void MakeFirstLayout(runlog::ProbeLog& log) {
  for (const runlog::Group& group : runlog::SchemaOf<runlog::ProbeLog>()) {
    for (const runlog::Column& column : group.columns) {
      if (column.own_since == 1) continue;
      runlog::MutableView(log).WithValues(column,
                                          [](auto& values) { values.clear(); });
    }
  }
  log.schema_version = 1;
}

}  // namespace isoloss::test_support
