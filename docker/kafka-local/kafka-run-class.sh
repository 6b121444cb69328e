#!/bin/bash
# Runs a class of Kafka with the variables that Kafka's own scripts know.
#
#   kafka-run-class.sh CLASS [ARGUMENT...]
#
# Every name in /opt/kafka/bin links to this file; under another name it runs that tool.
set -euo pipefail

config=/opt/kafka/config
heap=-Xmx256M
logging=tools-log4j2.yaml
case $(basename "$0" .sh) in
    kafka-run-class) class=$1; shift ;;
    kafka-server-start) class=kafka.Kafka; heap="-Xmx1G -Xms1G"; logging=log4j2.yaml ;;
    kafka-storage) class=kafka.tools.StorageTool ;;
    kafka-topics) class=org.apache.kafka.tools.TopicCommand ;;
    kafka-broker-api-versions) class=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
    kafka-consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
    kafka-console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
    kafka-console-producer) class=org.apache.kafka.tools.ConsoleProducer ;;
    kafka-transactions) class=org.apache.kafka.tools.TransactionsCommand ;;
    kafka-dump-log) class=org.apache.kafka.tools.DumpLogSegments ;;
    kafka-get-offsets) class=org.apache.kafka.tools.GetOffsetShell ;;
    *) echo "no tool of this name: $0" >&2; exit 2 ;;
esac

# A list of options, split at blanks as in Kafka's scripts.
read -r -a options <<<"${KAFKA_HEAP_OPTS:-$heap} ${KAFKA_JVM_PERFORMANCE_OPTS-} ${KAFKA_JMX_OPTS-} \
${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=$config/$logging} ${KAFKA_OPTS-}"
exec java "${options[@]}" -Djava.awt.headless=true -cp "/opt/kafka/libs/*${CLASSPATH:+:$CLASSPATH}" "$class" "$@"
