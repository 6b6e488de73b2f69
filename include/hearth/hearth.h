/* Hearth: runs language models on your own machine. This header includes all the others. */
#ifndef HEARTH_HEARTH_H
#define HEARTH_HEARTH_H

#include <hearth/adapter.h>
#include <hearth/answer.h>
#include <hearth/array.h>
#include <hearth/backend.h>
#include <hearth/cancel.h>
#include <hearth/chat.h>
#include <hearth/discover.h>
#include <hearth/dtype.h>
#include <hearth/engine.h>
#include <hearth/evaluate.h>
#include <hearth/fast.h>
#include <hearth/fuse.h>
#include <hearth/generate.h>
#include <hearth/index.h>
#include <hearth/inspect.h>
#include <hearth/io.h>
#include <hearth/linalg.h>
#include <hearth/log.h>
#include <hearth/losses.h>
#include <hearth/measure.h>
#include <hearth/memory.h>
#include <hearth/model.h>
#include <hearth/npy.h>
#include <hearth/ops.h>
#include <hearth/optimizer.h>
#include <hearth/order.h>
#include <hearth/precision.h>
#include <hearth/quantize.h>
#include <hearth/random.h>
#include <hearth/report.h>
#include <hearth/session.h>
#include <hearth/state.h>
#include <hearth/status.h>
#include <hearth/template.h>
#include <hearth/text.h>
#include <hearth/tokenizer.h>
#include <hearth/train.h>
#include <hearth/transform.h>
#include <hearth/version.h>

#endif
